"""Options of formats on the command line: lists without JSON, names of formats, advice."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run, run_json

import headrace as hr
from headrace import errors
from headrace.formats import table


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text("id,text,n,split\n1,a,,train\n2,b,5,test\n3,c,6,2020\n")
    return path


def made(format: str, *options: str) -> hr.formats.Format:
    return table.with_options(format, options)


@pytest.mark.parametrize(
    ("format", "option", "wanted"),
    [
        ("manifest", "columns=id,text", ("id", "text")),
        ("manifest", "columns=id, text", ("id", "text")),
        ("manifest", "columns=id", ("id",)),
        ("manifest", 'columns=["id", "a,b"]', ("id", "a,b")),
        ("manifest", 'columns="id"', ("id",)),
        ("manifest", "columns=1,2", ("1", "2")),
        ("manifest", "columns=5", ("5",)),
        ("manifest", "columns=null", None),
        ("manifest", "split=train", "train"),
        ("manifest", "split=2020", "2020"),
        ("manifest", 'split="train"', "train"),
        ("manifest", "quote=null", None),
        ("manifest", "delimiter=;", ";"),
        ("manifest", "strip=true", True),
        ("manifest", "strip=True", True),
        ("manifest", 'fill={"n": 0}', {"n": 0}),
        ("parquet", "optional=a,b", ("a", "b")),
        ("webdataset", "members=jpg,cls", ("jpg", "cls")),
        ("hdf5", "columns=x,y", ("x", "y")),
        ("tokens", "window=1024", 1024),
        ("records", "dtype=<f4", "<f4"),
    ],
)  # fmt: skip
def test_values(format: str, option: str, wanted: object) -> None:
    name = option.partition("=")[0]
    found = getattr(made(format, option), name)
    assert (type(found), found) == (type(wanted), wanted)


def test_a_mapping_says_how_it_is_written(path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="fill is a JSON object") as caught:
        made("manifest", "fill=n=0")
    (typed,) = re.findall(r"(--option '.*')$", str(caught.value))
    _, option = shlex.split(typed)
    assert made("manifest", option).options()["fill"] == {"n": "0"}


def test_lists_in_commands_without_a_format(path: Path) -> None:
    shown = run_json("inspect", path, "--option", "columns=id,text")
    assert [each["name"] for each in shown["fields"]] == ["id", "text"]
    shown = run_json("inspect", path, "--format", "manifest", "--option", "columns=id,text")
    assert shown["samples"] == 3
    shown = run_json("inspect", path, "--option", "split=2020", "--option", "columns=id")
    assert shown["samples"] == 1
    run_json("index", path, "--option", 'fill={"n": 0}')


def test_advice_in_commands_is_options(path: Path, tmp_path: Path) -> None:
    def advised(path: Path, code: int = 2) -> list[list[str]]:
        said = run("inspect", path, code=code).stderr
        assert "format=hr" not in said
        found = re.findall(r"--format \w+(?: --option (?:'[^']*'|[^ ,;]+(?:,[^ ,;]+)*))*", said)
        return [shlex.split(each) for each in found]

    filled, optional, without = advised(path)
    assert [each["name"] for each in run_json("inspect", path, *without)["fields"]] == [
        "id", "text", "split",
    ]  # fmt: skip
    assert run_json("inspect", path, *filled)["samples"] == 3
    assert len(run_json("inspect", path, *optional)["fields"]) == 5
    other = tmp_path / "b.csv"
    other.write_text("a;b\n1;2\n")
    assert len(run_json("inspect", other, *advised(other)[0])["fields"]) == 2
    other.write_text('a,b\n1,"2\n')
    assert run_json("inspect", other, *advised(other, code=1)[0])["samples"] == 1


FILL = "format=hr.formats.Manifest(fill={'a': ')', 'b': [1.5]}, text=('a', 'b'), split='c')"
TYPED = """--format manifest --option 'fill={"a": ")", "b": [1.5]}' --option text=a,b"""
NOT_TYPED = (
    "format=hr.formats.Tokens(window=...), format=hr.formats.Nope(a=1), format=hr.formats.Parq"
)


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("format=hr.formats.Parquet()", "--format parquet"),
        ("x (format=hr.formats.Manifest(quote=None)) y", None),
        (f"{FILL}, z", f"{TYPED} --option split=c, z"),
        (NOT_TYPED, NOT_TYPED),
    ],
)
def test_advice_as_options(python: str, command: str | None) -> None:
    wanted = command or "x (--format manifest --option quote=null) y"
    assert table.for_commands(python) == wanted


def test_a_wrong_option_names_those_of_the_format(path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'manifest' has these options: paths"):
        table.with_options(None, ["nope=1"], str(path))


def test_the_help_names_the_formats() -> None:
    command = [sys.executable, "-m", "headrace", "inspect", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = re.sub(r"[│\s]+", " ", done.stdout)
    names = ", ".join(each.name for each in table.FORMATS if each.option_names())
    assert names.split(", pieces")[0] in words
    assert "columns=image,label" in words
