"""Messages about files and paths that cannot be read: tars, .npy, patterns, permissions."""

from __future__ import annotations

import io
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import errors
from headrace.formats import HuggingFace
from headrace.formats._files import paths, patterns
from headrace.formats._files.npy import read_npy_header
from headrace.formats._files.reading import open_file

REMEDY = "; see what is there with `namei -l PATH`; if its disk fails, copy it again"
CHMOD = "find the file or folder that refuses with `namei -l PATH`, and chmod it"


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open(path, **options)
    return str(caught.value)


# Tars.


def header(name: str, kind: bytes, size: int = 0, size_field: bytes | None = None) -> bytes:
    """A tar header with its checksum; `size_field`: what it says in place of octal digits."""
    data = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    data[124:136] = b"%011o\0" % size if size_field is None else size_field
    data[156:157] = kind
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data)


def block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(text: bytes) -> bytes:
    return header("pax", b"x", len(text)) + block(text)


def huge(first: int) -> bytes:
    return header("b.txt", b"0", size_field=bytes([first]) + b"\xff" * 11)


@pytest.mark.parametrize(
    ("entries", "offset", "message"),
    [
        (header("b.txt", b"Z"), 1024 + 156, "a member of unknown type b'Z'"),
        (
            header("long", b"L", 2**20 + 1) + bytes(2**20 + 512),
            1024 + 124,
            "a name or pax header of 1048577 bytes",
        ),
        (huge(0x80), 1024 + 124, "a negative or huge number"),
        (huge(0xFF), 1024 + 124, "a negative or huge number"),
        (pax(b"nonsense"), 1536, "a pax record that cannot be read"),
        (pax(b"8 a=bcd\n9 path=x!"), 1544, "a pax record without its end"),
        (
            pax(b"11 size=-1\n") + header("b.txt", b"0", 1) + block(b"b"),
            2048,
            "its pax record says size '-1'",
        ),
    ],
)
def test_members_of_tars_that_make_no_sense(
    tmp_path: Path, entries: bytes, offset: int, message: str
) -> None:
    path = tmp_path / "a.tar"
    first, end = header("a.txt", b"0", 1) + block(b"a"), bytes(1024)
    path.write_bytes(first + end)
    assert [each["txt"] for each in hr.open(path)] == [b"a"]
    path.write_bytes(first + entries + end)
    assert (
        refusal(path) == f"indexing {path}: byte {offset}: {message}; copy or write the file again"
    )


# .npy.


def test_a_header_of_npy_that_ends_early(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    data = file.getvalue()

    def read(at: int, count: int) -> bytes:
        """As of a file that is cut while it is read."""
        return data[at : min(at + count, 40)]

    with pytest.raises(errors.DataLossError) as caught:
        read_npy_header(read, len(data), "a.npy")
    assert str(caught.value) == (
        "reading a.npy: byte 10: the header is cut short; copy or write the file again"
    )


# Paths.


def test_patterns_that_match_nothing(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/{{a,b}}-*.tar"
    message = f"pattern {pattern}: no file matches it; see what is there with ls"
    assert refusal(pattern) == message
    (tmp_path / "b-1.tar").write_bytes(header("a.txt", b"0", 1) + block(b"a") + bytes(1024))
    assert len(hr.open(pattern)) == 1


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("none", "none: no such file or folder; see what is there with ls"),
        (
            "none/a/b",
            "none/a/b: no such file or folder (the path exists as far as {0}); see what is there "
            "with ls",
        ),
        ("n" * 300, "n: File name too long; shorten the path"),
    ],
)
def test_paths_to_nothing(tmp_path: Path, path: str, end: str) -> None:
    said = refusal(tmp_path / path)
    assert said.startswith(f"opening dataset {tmp_path}/n")
    assert said.endswith(end.format(tmp_path))


def denied(*_: Any, **__: Any) -> Any:
    raise PermissionError(13, "Permission denied")


def test_what_this_user_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = f"{tmp_path}: Permission denied for user {os.geteuid()}: {CHMOD}"
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", denied)
        error = paths._not_found(f"opening dataset {tmp_path}", str(tmp_path))
    assert isinstance(error, errors.FailedPreconditionError)
    assert str(error) == f"opening dataset {why}"
    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(errors.FailedPreconditionError) as caught:
        patterns.files_at(str(tmp_path), lambda name: True)
    assert str(caught.value) == f"indexing {why}"


@pytest.mark.parametrize("name", ["loop", "folder"])
def test_what_the_system_does_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(errors.FailedPreconditionError) as caught,
        open_file(str(tmp_path / name)) as file,
    ):
        file.read(0, 1)
    why = {"loop": "Too many levels of symbolic links", "folder": "Is a directory"}[name]
    assert str(caught.value) == f"reading {tmp_path / name}: {why}{REMEDY}"


# Sounds.


def wav() -> bytes:
    data = struct.pack("<2h", 1, 2)
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVE"
        + fmt
        + b"data"
        + struct.pack("<I", len(data))
        + data
    )


@pytest.mark.parametrize(
    ("sounds", "message"),
    [
        ("audio", "sounds: got 'audio', must be names, as ('audio',)"),
        (
            ("label",),
            "indexing {}: sounds: got 'label': it holds array; name fields of bytes: audio",
        ),
        (
            ("x",),
            "indexing {}: sounds: got 'x': there is no such field; name fields of bytes: audio",
        ),
    ],
)
def test_sounds_that_are_none(tmp_path: Path, sounds: Any, message: str) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "a.arrow"
    table = pa.table({"audio": pa.array([wav()]), "label": [1]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    assert refusal(path, format=HuggingFace(sounds=sounds)) == message.format(path)
    row = HuggingFace(columns=("label",), sounds=("label",))
    assert refusal(path, format=row) == (
        f"indexing {path}: sounds: got 'label': it holds array; leave sounds out: no field has "
        "bytes"
    )


def test_images_and_sounds_in_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"png")
    (folder / "b.wav").write_bytes(wav())
    assert refusal(folder, format="media") == (
        f"indexing {folder}: {folder}/a.png and {folder}/b.wav: images and sounds are not one "
        "dataset; open those of one kind by a pattern"
    )
    assert len(hr.open(f"{folder}/*.wav")) == 1
