"""Two parts of a sample that would be one field: refused by the data's name, with what helps."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import ClassVar

import pytest
from split_data import calls, picture, refusal

import headrace as hr
from headrace import errors
from headrace.formats import Builder, Format, WebDataset

PICTURE = picture(3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tar(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w") as file:
        for key in ("a", "b"):
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"cls": b"1", "label": b"cat"}, "label"),
        ({"label": b"cat", "cls": b"1"}, "label"),
        ({"jpg": PICTURE, "image": b"x", "cls": b"2"}, "image"),
        ({"image": b"x", "png": PICTURE}, "image"),
        ({"seg.png": PICTURE, "seg_png": b"x", "txt": b"y"}, "seg_png"),
        ({"a.b": b"1", "a-b": b"2"}, "a_b"),
    ],
)
def test_members_of_one_name_are_refused_by_calls_that_help(
    members: dict[str, bytes], field: str, tmp_path: Path
) -> None:
    path = tar(tmp_path / "a.tar", **members)
    message = refusal(path)
    assert f"{path}: members ." in message
    assert f"would both be the field {field!r}" in message
    fewer, raw = (eval(each) for each in calls(message))
    assert len(fewer.fields) == len(members) - 1
    assert len(raw.fields) == len(members)
    assert all(len(row) == len(members) for row in raw)


def test_options_stay_in_the_calls(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", cls=b"1", label=b"cat", txt=b"x", json=b"{}")
    given = WebDataset(members=("cls", "label", "txt"), raw=("txt",))
    fewer, raw = (eval(each) for each in calls(refusal(path, format=given)))
    assert set(fewer.fields) == {"label", "txt"}
    assert set(raw.fields) == {"cls", "label", "txt"}


class Twice(Format):
    name: ClassVar[str] = "twice"
    opens: ClassVar[str] = "a file that is described twice"

    def recognises(self, path: str) -> bool:
        return False

    def fill(self, path: str, builder: Builder) -> None:
        builder.add_field("data", "bytes")
        builder.add_field("data", "bytes")


def test_of_any_format_the_data_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(errors.InvalidArgumentError, match=r"indexing .*/a: field 1 'data': the na"):
        hr.open(tmp_path / "a", format=Twice())
