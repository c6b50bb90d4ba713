"""Messages about formats of users, what they tell the builder, indexes and packs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from commands import run

import headrace as hr
from headrace import errors
from headrace.formats import Builder, Format, Given, HuggingFace, Tokens, table
from headrace.formats import _row_group_reader as reader
from headrace.formats.index_file import IndexFile
from headrace.pack import _partial as partial
from headrace.pack import _write, write_pack
from headrace.pack._gather import Gathered
from headrace.pack._shard import _locate


@dataclass(frozen=True, kw_only=True)
class Bytes(Format):
    """Each byte of a file is a sample."""

    name: ClassVar[str] = "bytes-of-a-test"
    opens: ClassVar[str] = "a file of a test"

    notes: Any = None
    attributes: Any = ()

    def recognises(self, path: str) -> bool:
        return False

    def fill(self, path: str, builder: Builder) -> None:
        file = builder.add_file(path)
        builder.add_field("data", "bytes")
        builder.add_extents("data", file, range(os.path.getsize(path)), 1)
        for key, value in self.attributes:
            builder.set_attribute(key, value)


class Unfinished(Format):
    """One that has no method yet."""

    name = "unfinished"
    opens = "nothing yet"

    def recognises(self, path: str) -> bool:
        return False


class Box:
    """An object that a format of a test knows."""


class Boxes(Unfinished):
    """Opens it."""

    name = "boxes-of-a-test"

    def of_object(self, given: object) -> Given | None:
        return Given("a box", "", "/", lambda _: None) if isinstance(given, Box) else None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "a.data"
    path.parent.mkdir()
    path.write_bytes(b"abcdefgh")
    return path


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(errors.HeadraceError) as caught:
        call()
    return str(caught.value)


# Formats.


def test_methods_that_a_format_needs(data: Path) -> None:
    assert refusal(lambda: hr.open(data, format=Unfinished())) == (
        f"indexing {data}: nothing yet cannot be indexed: format 'unfinished' needs a method "
        "fill(path, builder)"
    )
    for row in (Unfinished(), IndexFile()):
        assert refusal(lambda row=row: row.own_samples("x")) == (
            f"reading x: {row.opens} has no reader of its own; read hr.open('x')"
        )


def test_options_and_attributes_of_a_format(data: Path) -> None:
    assert [each["data"] for each in hr.open(data, format=Bytes())] == [
        b"%c" % c for c in b"abcdefgh"
    ]
    assert refusal(lambda: hr.open(data, format=Bytes(notes=data))) == (
        "format bytes-of-a-test: its options must be JSON values: Object of type PosixPath is not "
        "JSON serializable"
    )
    for key, value, why in (
        ("classes", "{", "its list of classes is damaged: Expecting property name"),
        ("classes", "5", "its list of classes is damaged: it is 5; "),
        ("classes", "[5]", "its list of classes is damaged: it is [5]; "),
        ("report", "5", "its report is damaged: 'int' object is not iterable; "),
    ):
        row = Bytes(attributes=((key, value),))
        said = refusal(lambda row=row: hr.open(data, format=row))
        assert said.startswith(f"opening {data}: {why}")
        assert said.endswith("; make the index again")


def test_a_split_of_an_object_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FORMATS", (*table.FORMATS, Boxes()))
    assert refusal(lambda: hr.open(Box(), split="train")) == (
        "opening a box: split='train' was given, but it is one dataset; leave split out"
    )


def test_batches_of_a_type_that_is_not_wider(data: Path) -> None:
    row = Tokens(window=2, dtype="uint16", batch_dtype="int16")
    assert refusal(lambda: hr.open(data, format=row)) == (
        f"indexing {data}: field 0 'tokens': batches would hold int16, which is not a wider type "
        "than uint16; choose a wider batch_dtype, or leave it out"
    )
    assert len(hr.open(data, format=Tokens(window=2, dtype="uint16", batch_dtype="int32"))) == 1
    assert len(hr.open(data, format=Tokens(window=2, dtype="uint16"))) == 1


# The builder.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b: b.add_values("label", [[1], [1, 2]]),
            "field 'label': setting an array element with a sequence. The requested array has an "
            "inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous "
            "part.; give samples of one shape",
        ),
        (lambda b: b.add_values("text", [b"x"]), "field 'text' of text: got b'x', must be text"),
        (lambda b: b.add_values("blob", ["x"]), "field 'blob' of bytes: got 'x', must be bytes"),
        (
            lambda b: b.add_extents("word", 0, [1], 1, decoded=[2]),
            "field 'word': decoded= was given, but its samples are not compressed, or arrays of "
            "one shape; leave it out",
        ),
        (
            lambda b: b.add_file(f"{b.root}/none"),
            "adding file {0}/none: No such file or directory; see what is there with `namei -l "
            "PATH`; if its disk fails, copy it again",
        ),
        (
            lambda b: b.depends_on(f"{b.root}/none"),
            "reading the state of {0}/none: No such file or directory; see what is there with "
            "`namei -l PATH`; if its disk fails, copy it again",
        ),
        (
            lambda b: b.add_parts(["a", "b"], lambda path, part: part.publish()),
            "writing an index: it is that of the whole, not of a part; call publish() of the "
            "builder itself",
        ),
    ],
)
def test_what_a_builder_is_told_wrongly(
    data: Path, tmp_path: Path, call: Callable[[Any], object], message: str
) -> None:
    def build() -> None:
        with Builder(tmp_path / "i.hri", root=data.parent) as builder:
            builder.add_field("word", "bytes")
            builder.add_field("label", "array", "int64", inline=True)
            builder.add_field("text", "text", inline=True)
            builder.add_field("blob", "bytes", inline=True)
            builder.add_file(data)
            call(builder)

    assert refusal(build) == message.format(data.parent)


def test_files_in_place_of_row_groups(data: Path, tmp_path: Path) -> None:
    def build() -> None:
        with Builder(tmp_path / "i.hri", root=data.parent, decodes="groups") as builder:
            builder.add_file(data)

    assert refusal(build) == f"adding files of {data.parent}: got files; call add_group()"


def group_request(*words: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in words) + bytes(16)


def test_row_groups_of_a_format_that_has_none() -> None:
    answer = reader.answered(group_request(b"tokens", b"/x", b"0"), memoryview(bytearray(2)))
    assert answer[13:] == b"decoding: format 'tokens' has no row groups; make the index again"
    answer = reader.answered(group_request(b"parquet", b"/x", b"y"), memoryview(bytearray(2)))
    assert answer[13:] == b"decoding: the index names no row group by 'y'; make the index again"


# Indexes.


def test_samples_that_an_index_cannot_leave_out(data: Path, tmp_path: Path) -> None:
    (tmp_path / "failures").write_text("1\twhy\n")
    skip = f"@{tmp_path}/failures"
    row = Tokens(window=1, dtype="uint16", targets=False)
    words = ("--format", "tokens", "--option", "window=1", "--option", "dtype=uint16")
    assert run("index", data, *words, "--skip", skip, code=2).stderr == (
        f"headrace: indexing {data}: skip=['{skip}']: an index holds all samples of {row.opens}; "
        "index it without, and give skip= to hr.open()\n"
    )
    assert [each["tokens"][0] for each in hr.open(data, format=row, skip=skip)] == [
        int.from_bytes(each, "little") for each in (b"ab", b"ef", b"gh")
    ]


# Packs.


def test_datasets_that_make_no_pack(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "a.arrow"
    numbers = pa.table({"n": [1, 2]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, numbers.schema) as writer:
        writer.write(numbers)
    dataset = hr.open(path, format=HuggingFace())
    assert refusal(lambda: write_pack(dataset, tmp_path / "pack")) == (
        f"packing {path}: all its fields are inline in the index: nothing to pack; open it as it is"
    )


def test_a_disk_that_cannot_hold_the_pack(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = hr.open(data, format=Bytes())
    with monkeypatch.context() as patch:
        patch.setattr(_write, "free_bytes", lambda folder: 7)
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            write_pack(dataset, tmp_path / "pack")
    assert type(caught.value) is errors.ResourceExhaustedError
    assert str(caught.value) == (
        f"packing to {tmp_path}/pack: at least 8 bytes are needed, 7 bytes are free in {tmp_path}; "
        "make room, or pack to another disk"
    )
    assert not (tmp_path / "pack").exists()
    write_pack(dataset, tmp_path / "pack")
    assert sorted(each["data"] for each in hr.open(tmp_path / "pack"))[0] == b"a"


def test_what_was_gathered_is_gone(data: Path, tmp_path: Path) -> None:
    index = hr.open(data, format=Bytes()).index
    samples = np.arange(3, dtype=np.uint64)
    with Gathered(index, [samples], tmp_path) as gathered:
        into = memoryview(bytearray(3))
        assert refusal(lambda: gathered.read_into(gathered.extents(0, samples), into)) == (
            "reading samples that were gathered: the file ends at byte 0; the disk or its memory "
            "is at fault: check it, then run the command again"
        )


def test_a_shard_that_lacks_a_block(data: Path, tmp_path: Path) -> None:
    write_pack(hr.open(data, format=Bytes()), tmp_path / "pack")
    (path,) = (tmp_path / "pack").glob("*.arrow")
    with open(path, "rb") as file:
        size = path.stat().st_size
        assert refusal(lambda: _locate(file.fileno(), str(path), size, 0, [[], []])) == (
            f"verifying {path}: 1 of 2 blocks are there; the disk or its memory is at fault: check "
            "it, then run the command again"
        )


def test_a_folder_that_cannot_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert refusal(lambda: partial._exchange(tmp_path / "new", tmp_path / "old")) == (
        f"replacing {tmp_path}/old: No such file or directory; see what is there with `ls -la "
        f"{tmp_path}`, then run the command again"
    )
