"""`headrace.formats`: the builder, and a user's own format, that of docs/formats/own.md."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from commands import run, run_json

import headrace as hr
from headrace import errors
from headrace.formats import Builder, Format, register, table
from headrace.pack import write_pack

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "own.md"
LINES_MAX = 60


def page_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FORMATS", table.FORMATS)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.lines"
    path.write_bytes(b"".join(b"%d\ttext %d%s\n" % (n % 3, n, b"x" * (n % 7)) for n in range(50)))
    return path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's format, registered; the folder of its module."""
    (tmp_path / "modules").mkdir()
    module = page_blocks()[0]
    (tmp_path / "modules" / "lines.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.delitem(sys.modules, "lines", raising=False)
    importlib.import_module("lines")
    return tmp_path / "modules"


def test_the_page_s_format_is_short() -> None:
    assert len(page_blocks()[0].splitlines()) < LINES_MAX


@pytest.mark.usefixtures("own")
def test_the_page_s_format_is_opened_loaded_and_packed(lines: Path, tmp_path: Path) -> None:
    dataset = hr.open(lines)
    row = dataset.format_row
    wanted = list(row.own_samples(str(lines)))
    assert len(wanted) == 50
    assert list(dataset) == wanted
    assert (dataset.format, dataset.fields) == ("lines", ("text", "label"))
    for order in ("exact", "batch", "epoch", "redox"):
        with hr.Loader(dataset, 8, order=order, output=hr.Output("numpy", ids=True)) as loader:
            for _ in range(2):
                seen = []
                for batch in loader:
                    for text, label, number in zip(*batch, strict=True):
                        assert text == wanted[number]["text"]
                        assert label == wanted[number]["label"]
                        seen.append(int(number))
                assert sorted(seen) == list(range(50))
    write_pack(dataset, tmp_path / "pack")
    packed = sorted((each["text"], int(each["label"])) for each in hr.open(tmp_path / "pack"))
    assert packed == sorted((each["text"], each["label"]) for each in wanted)


@pytest.mark.usefixtures("own")
def test_an_index_is_kept_until_the_file_changes(lines: Path, tmp_path: Path) -> None:
    def indexes() -> list[int]:
        return [each.stat().st_ino for each in (tmp_path / "cache" / "headrace").iterdir()]

    first = hr.open(lines)
    (inode,) = indexes()
    hr.open(lines)
    assert indexes() == [inode]
    lines.write_bytes(lines.read_bytes() + b"7\tmore\n")
    advice = rf"; run `headrace index {lines} --format lines` to index the data as it is now$"
    with pytest.raises(errors.FailedPreconditionError, match=advice):
        first.read(0)
    again = hr.open(lines)
    assert len(again) == 51
    assert indexes() != [inode]


@pytest.mark.usefixtures("own")
def test_an_index_at_a_path_of_the_user_s_is_used_and_not_taken_from_others(
    lines: Path, tmp_path: Path
) -> None:
    dataset = hr.open(lines, index=tmp_path / "i.hri")
    assert not (tmp_path / "cache").exists()
    assert hr.open(tmp_path / "i.hri").fingerprint == dataset.fingerprint
    assert pickle.loads(pickle.dumps(dataset)).fingerprint == dataset.fingerprint
    other = tmp_path / "b.lines"
    other.write_bytes(lines.read_bytes())
    with pytest.raises(errors.InvalidArgumentError, match=r"is one of .*a\.lines, or was made"):
        hr.open(other, index=tmp_path / "i.hri")


@pytest.mark.usefixtures("own")
def test_commands_know_the_formats_of_headrace_formats(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "FORMATS", table.FORMATS[:-1])  # As in a process that begins.
    run("inspect", lines, code=2)
    monkeypatch.setenv("HEADRACE_FORMATS", "lines")
    monkeypatch.delitem(sys.modules, "lines")
    assert "indexed 50 samples" in run("index", lines).stdout
    assert run_json("inspect", lines)["format"] == "lines"
    assert run("verify", lines).stdout.startswith("good: 50 samples")
    assert "packed 50 samples" in run("pack", lines, tmp_path / "pack").stdout
    assert run("order", lines, "--order", "epoch", "--batch", 4).stdout
    assert run("plan", lines, "--ram", "1MiB", "--batch", 4).stdout
    lines.write_bytes(b"no label\n")
    assert "byte 0: line 1 has no label" in run("index", lines, code=1).stderr
    monkeypatch.setenv("HEADRACE_FORMATS", "absent_module")
    failed = run("inspect", lines, code=2).stderr
    assert "HEADRACE_FORMATS=absent_module: importing absent_module" in failed


@dataclass(frozen=True, kw_only=True)
class Pieces(Format):
    """Files cut into equal pieces."""

    name: ClassVar[str] = "pieces"
    opens: ClassVar[str] = "a file to cut"
    size: int = 10

    def recognises(self, path: str) -> bool:
        return False

    def fill(self, path: str, builder: Builder) -> None:
        count = os.path.getsize(path) // self.size
        builder.add_field("piece", "array", "uint8", [self.size])
        builder.add_extents(
            "piece", builder.add_file(path), np.arange(count) * self.size, self.size
        )


def test_options_are_part_of_the_dataset(lines: Path) -> None:
    two, ten = (hr.open(lines, format=Pieces(size=size)) for size in (2, 10))
    assert (len(two) // 5, two[0]["piece"].tolist()) == (len(ten), list(lines.read_bytes()[:2]))
    assert two.fingerprint != ten.fingerprint
    assert len(hr.open(lines, format=Pieces(size=2))) == len(two)
    again = pickle.loads(pickle.dumps(two))  # The format is in no table.
    assert again.fingerprint == two.fingerprint
    assert "--format pieces --option size=2`" in again.format_row.remedy(again.index)


def test_options_are_given_on_the_command_line(lines: Path) -> None:
    register(Pieces())
    assert table.with_options("pieces", ["size=3"]) == Pieces(size=3)
    assert hr.open(lines, format="pieces").kind("piece") == "array"
    with pytest.raises(errors.InvalidArgumentError, match="has these options: size; write NAME="):
        table.with_options("pieces", ["width=3"])
    with pytest.raises(errors.InvalidArgumentError, match="say the format, too"):
        table.with_options(None, ["width=3"])
    with pytest.raises(errors.InvalidArgumentError, match=r"format 'piece': there are folder, "):
        hr.open(lines, format="piece")


def test_register_refuses_what_is_no_format_and_names_that_are_taken() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be an instance of a class derived"):
        register(Pieces)  # type: ignore[arg-type]
    other = type("Other", (Pieces,), {"name": "folder"})
    with pytest.raises(errors.InvalidArgumentError, match="'folder' is that of another format"):
        register(other())
    nameless = type("Nameless", (Pieces,), {"opens": None})
    with pytest.raises(errors.InvalidArgumentError, match=r"Nameless\.opens must be a str"):
        register(nameless())
    register(Pieces())
    register(Pieces(size=7))  # Again, as a module that is loaded again does.
    assert [each for each in table.FORMATS if each.name == "pieces"] == [Pieces(size=7)]


# The builder.


def test_the_page_s_builder_writes_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.lines").write_bytes(b"0\thello\n1\tabc\n")
    for block in page_blocks()[1:5]:
        exec(block, {"hr": hr})
    assert [each["text"] for each in hr.open("a.hri")] == ["hello", "abc"]


def built(path: Path, data: Path) -> None:
    with Builder(path, root=data.parent) as builder:
        builder.add_field("word", "bytes")
        builder.add_field("pair", "array", "uint16", [2], batch_dtype="int64")
        builder.add_field("weight", "array", "float32", [2, 1], inline=True)
        number = builder.add_file(data)
        for first in range(0, 10, 5):
            numbers = np.arange(first, first + 5)
            builder.add_extents("word", number, numbers, numbers % 4)
            builder.add_extents("pair", [number] * 5, numbers * 4, 4)
            builder.add_values("weight", numbers.reshape(5, 1, 1) * np.ones((5, 2, 1)))
        builder.set_classes(["a", "ü"])
        builder.set_attribute("mine", "text")


def test_what_was_built_is_read(tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(bytes(range(60)))
    built(tmp_path / "i.hri", data)
    dataset = hr.open(tmp_path / "i.hri")
    assert len(dataset) == 10
    assert dataset.classes == ("a", "ü")
    assert dataset.index.attributes["mine"] == "text"
    assert dataset[7]["word"] == bytes([7, 8, 9])
    pairs = np.frombuffer(data.read_bytes()[:40], "<u2").reshape(10, 2)
    assert dataset[3]["pair"].tolist() == pairs[3].tolist()
    assert dataset[3]["pair"].dtype == np.int64
    assert dataset[3]["weight"].tolist() == [[3.0], [3.0]]
    with hr.Loader(dataset, 5, shuffle=False, output="numpy") as loader:
        for number, batch in enumerate(loader):
            assert batch.pair.dtype == np.int64
            assert np.array_equal(batch.pair, pairs[5 * number : 5 * number + 5])
    write_pack(dataset, tmp_path / "pack")
    packed = hr.open(tmp_path / "pack")
    assert packed[0]["pair"].dtype == np.int64
    assert sorted(tuple(each["pair"]) for each in packed) == sorted(map(tuple, pairs.tolist()))


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "i.hri", root=tmp_path)

    def build() -> None:
        with builder:
            builder.add_field("word", "array", "int64", inline=True)
            builder.add_values("word", np.zeros(200_000, np.int64))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.FailedPreconditionError, match="published or discarded"):
        builder.publish()


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, numpy as np, headrace as hr\n"
        "builder = hr.formats.Builder(sys.argv[1], root='/')\n"
        "builder.add_field('word', 'array', 'int64', inline=True)\n"
        "builder.add_values('word', np.zeros(500_000, int))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "i.hri")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_progress_function_that_raises_stops_the_indexing(tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(bytes(100))

    class Told(Pieces):
        def fill(self, path: str, builder: Builder) -> None:
            super().fill(path, builder)
            builder.tell(3)

    def progress(found: int) -> None:
        assert found == 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hr.open(data, format=Told(), index=tmp_path / "i.hri", progress=progress)
    assert list(tmp_path.iterdir()) == [data]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b: b.add_extents("none", 0, [0], 1),
            r"field 'none': add it first; there are: word",
        ),
        (lambda b: b.add_extents("word", 0, [99], 2), r"bytes \[99, 101\): 'data.bin' has 100"),
        (lambda b: b.add_extents("word", 0, [-1], 2), "must be numbers of 0 and more"),
        (lambda b: b.add_extents("word", 0, [1.5], 2), "must be numbers of 0 and more"),
        (lambda b: b.add_extents("word", 0, [1, 2], [1, 2, 3]), "differ in number: 3, 2"),
        (lambda b: b.add_extents("word", 1, [1], 1), "object 1: there are 1 objects"),
        (lambda b: b.add_values("word", [1]), "field 'word': it is not inline; call add_extents"),
        (lambda b: b.add_values("label", [1.5]), "got values of float64, it holds int64"),
        (lambda b: b.add_values("label", [[1]]), r"shape \[1, 1\], must be \['samples'\]"),
        (lambda b: b.add_values("label", [1]), "has 0 samples|1 inline values"),
        (lambda b: b.add_field("word", "bytes"), "field 2 'word': the name is taken"),
        (lambda b: b.add_field("x", "string"), "field kind: got 'string', must be one of"),
        (lambda b: b.add_field("x", "array"), "an array has a dtype"),
        (lambda b: b.add_field("x", "array", "no"), "field 'x': got dtype 'no'"),
        (lambda b: b.add_field("x", "array", ">i4"), "must be little-endian"),
        (lambda b: b.add_field("x", "array", "<U3"), '"str96" is not known'),
        (
            lambda b: b.add_field("x", "array", "i4", batch_dtype="i2"),
            "not a wider type than int32",
        ),
        (lambda b: b.add_file("/etc/passwd"), "it does not lie in the root"),
        (lambda b: b.add_file(b.root + "/absent"), "adding file .*absent: No such file"),
        (lambda b: b.depends_on(b.root + "/absent"), "absent: No such file"),
        (lambda b: b.set_attribute("", "x"), "an attribute has no key"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, call: Any, message: str) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(bytes(100))

    def build() -> None:
        with Builder(tmp_path / "i.hri", root=tmp_path) as builder:
            builder.add_field("word", "bytes")
            builder.add_field("label", "array", "int64", inline=True)
            builder.add_file(data)
            call(builder)

    with pytest.raises(errors.HeadraceError, match=message):
        build()
    assert list(tmp_path.iterdir()) == [data]


def test_memory_does_not_grow_with_samples(tmp_path: Path) -> None:
    """In a process of its own, whose memory nothing else has taken before."""
    program = (
        "import resource, sys, numpy as np, headrace as hr\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "def build(count):\n"
        "    with hr.formats.Builder(sys.argv[1], root='/') as builder:\n"
        "        builder.add_field('a', 'bytes')\n"
        "        file = builder.add_files(['/x'], [1000], [0])\n"
        "        for first in range(0, count, 50_000):\n"
        "            builder.add_extents('a', file, np.full(50_000, 3), 5)\n"
        "build(100_000)\n"
        "before = peak()\n"
        "build(3_000_000)\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "i.hri")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "i.hri").stat().st_size > 48_000_000
    assert int(done.stdout) < 4_000  # KiB; the columns have 46 MiB


def test_every_command_that_opens_a_dataset_takes_its_format(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(Pieces())
    size = lines.stat().st_size
    count = size // 4
    with_format = (lines, "--format", "pieces", "--option", "size=4")
    assert run_json("inspect", *with_format)["samples"] == count
    assert run_json("verify", *with_format)["samples"] == count
    assert run_json("order", *with_format, "--hash")["samples"] == count
    assert run_json("order", *with_format, "--batch", 4)["samples"] == count
    (epoch,) = run_json("plan", *with_format, "--batch", 4, "--epochs", 1)["epochs"]
    assert epoch["samples"] == count
    seen = []

    def stop(dataset: hr.Dataset, **options: Any) -> None:
        seen.append(len(dataset))
        raise errors.InvalidArgumentError("measured")

    monkeypatch.setattr("headrace.cli._profile_commands.measure", stop)
    assert "measured" in run("profile", *with_format, code=2).stderr
    assert seen == [count]
    failed = run("order", "--samples", 9, "--format", "pieces", code=2).stderr
    assert "--format: says how to read a DATASET" in failed
    for command in ("order", "plan", "profile"):
        assert "say the format, too" in run(command, lines, "--option", "size=4", code=2).stderr
