"""Messages about Arrow files, damaged or with what no field holds, and objects of datasets."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import errors
from headrace.formats import HuggingFace
from headrace.formats._arrow import mapped_files
from headrace.formats._arrow.arrow_file import reading
from headrace.formats._huggingface import open_datasets

pa = pytest.importorskip("pyarrow")

MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
AGAIN = "; copy or write the file again"


def write(path: Path, *batches: dict[str, Any]) -> Path:
    """A stream of record batches, or a file if its name says so."""
    opened = pa.ipc.new_file if ".file." in path.name else pa.ipc.new_stream
    made = [pa.RecordBatch.from_pydict(each) for each in batches]
    with pa.OSFile(str(path), "wb") as sink, opened(sink, made[0].schema) as writer:
        for batch in made:
            writer.write(batch)
    return path


def change(path: Path, old: bytes, new: bytes, count: int = 1) -> None:
    """Writes `new` in place of `old`, which the file has so many times."""
    data = path.read_bytes()
    assert data.count(old) == count
    path.write_bytes(data.replace(old, new))


def rows(count: int, nulls: int = 0) -> bytes:
    """What a message says of the length of a column."""
    return struct.pack("<qq", count, nulls)


def refusal(path: Path, row: HuggingFace | None = None) -> str:
    """What opening it says, without where its record batch begins."""
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open(path, format=row)
    return str(caught.value).removeprefix(f"indexing {path}: record batch 0 ").partition("): ")[2]


def views(path: Path) -> None:
    write(path, {"a": pa.array(["x" * 40, "y" * 40], pa.string_view())})
    change(path, b"\x28\0\0\0yyyy\0\0\0\0", b"\x28\0\0\0yyyy\x07\0\0\0")


def fixed(path: Path) -> None:
    write(path, {"a": pa.array([b"abc"] * 5, pa.binary(3))})
    change(path, struct.pack("<q", 5), struct.pack("<q", 1000), 2)  # the batch and its column


def no_buffer(path: Path) -> None:
    write(path, {"a": pa.array(["abc", "de"], pa.large_string())})
    change(path, struct.pack("<qq", 24, 5), struct.pack("<qq", 24, 0))  # the bytes of its values


def inner_list(path: Path) -> None:
    inner = pa.large_list(pa.int8())
    write(path, {"a": pa.array([[[1, 2, 3]], [[4, 5]]], pa.list_(inner))})
    change(path, struct.pack("<qqq", 0, 3, 5), struct.pack("<qqq", 0, 2**33, 2**33))


def outer_lists(path: Path) -> None:
    write(path, {"a": pa.array([[1, 2, 3], [4, 5, 6, 7]], pa.list_(pa.int8()))})
    change(path, struct.pack("<iii", 0, 3, 7), struct.pack("<iii", 0, 3, 9))


def boxes(path: Path, rows_of: int, lists: int) -> None:
    """Of features of `datasets`: the last offsets of the rows, and of the lists in them."""
    features = {"a": {"_type": "Array2D", "shape": [2, 3], "dtype": "int16"}}
    of_type = pa.list_(pa.list_(pa.int16()))
    schema = pa.schema(
        [("a", of_type)], {"huggingface": json.dumps({"info": {"features": features}})}
    )
    values = pa.array([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]], of_type)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write(pa.record_batch([values], schema=schema))
    if rows_of != 4:
        change(path, rows(4), rows(rows_of))
    if lists != 12:
        change(path, rows(12), rows(lists))


def media(path: Path) -> None:
    write(path, {"a": pa.array([{"bytes": b"abc", "path": "x"}] * 3, MEDIA)})
    data = path.read_bytes()
    at = data.index(rows(3) * 3)  # the struct, its bytes, its paths
    path.write_bytes(data[: at + 16] + rows(2) + data[at + 32 :])


def null_in_dictionary(path: Path) -> None:
    numbers = pa.array([0, 1], pa.int8())
    write(path, {"a": pa.DictionaryArray.from_arrays(numbers, pa.array(["red", None]))})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (views, f"column 'a': a value lies in none of its 1 buffers{AGAIN}"),
        (fixed, f"column 'a': its rows take 3000 bytes, more than its buffer of 15{AGAIN}"),
        (no_buffer, f"column 'a': its values have no buffer{AGAIN}"),
        (
            inner_list,
            "column 'a': an inner list has 8,589,934,592 entries, at most 4,294,967,295 can be; "
            "leave the column out with columns=(...)",
        ),
        (outer_lists, f"column 'a': its lists end at entry 9 of 7{AGAIN}"),
        (lambda p: boxes(p, 3, 12), f"column 'a': its lists end at entry 4 of 3{AGAIN}"),
        (lambda p: boxes(p, 4, 11), f"column 'a': its lists end at entry 12 of 11{AGAIN}"),
        (media, f"column 'a': 3 rows, and 2 bytes, 3 paths{AGAIN}"),
        (
            null_in_dictionary,
            "column 'a': its dictionary holds null; cast the column to a string, or leave it out "
            "with columns=(...)",
        ),
    ],
)
def test_what_a_record_batch_says_wrongly_or_no_field_holds(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "a.arrow")
    assert refusal(tmp_path / "a.arrow") == message


def without_field(path: Path, message: int, *fields: int) -> None:
    """Takes a field out of a message, by the numbers that lead to it: its default is written."""
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(message):
        at += 8 + struct.unpack_from("<I", data, at + 4)[0]
    table = at + 8
    for number in fields:
        table += struct.unpack_from("<I", data, table)[0]
        entry = table - struct.unpack_from("<i", data, table)[0] + 4 + 2 * number
        offset = struct.unpack_from("<H", data, entry)[0]
        assert offset
        table += offset
    struct.pack_into("<H", data, entry, 0)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [((2,), "a message without a header"), ((2, 1), "a dictionary without values")],
)
def test_a_message_without_its_parts(tmp_path: Path, fields: tuple[int, ...], message: str) -> None:
    path = write(tmp_path / "a.arrow", {"a": pa.array(["red"]).dictionary_encode()})
    without_field(path, 1, *fields)
    with pytest.raises(errors.DataLossError) as caught:
        hr.open(path)
    assert str(caught.value).startswith(f"indexing {path}: byte ")
    assert str(caught.value).endswith(f": {message}{AGAIN}")


def test_a_footer_that_names_a_byte_outside_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.file.arrow", {"a": pa.array([1, 2])})
    data = path.read_bytes()
    block = data.rindex(
        struct.pack("<q", 16)
    )  # the body of the record batch, the last of its block
    (at,) = struct.unpack_from("<q", data, block - 16)
    path.write_bytes(data[: block - 16] + struct.pack("<q", 2**40) + data[block - 8 :])
    assert 8 <= at < len(data)
    with pytest.raises(errors.DataLossError) as caught:
        hr.open(path)
    assert str(caught.value) == (
        f"indexing {path}: byte {block - 16}: a message is at byte {2**40}, the file has "
        f"{len(data)}{AGAIN}"
    )


def test_a_stream_that_ends_before_pyarrow_has_read_it() -> None:
    with (
        pytest.raises(errors.DataLossError, match=r"^indexing a: record batch 3: the stream ends"),
        reading("a", "record batch 3"),
    ):
        raise StopIteration


def test_images_in_files_that_only_later_rows_have(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "out.png").write_bytes(b"png")
    inside = {"bytes": b"abc", "path": None}
    outside = {"bytes": None, "path": str(tmp_path / "out.png")}
    path = write(
        tmp_path / "data" / "a.arrow",
        {"image": pa.array([inside], MEDIA), "label": pa.array([0])},
        {"image": pa.array([inside, outside], MEDIA), "label": pa.array([1, 2])},
    )
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path)
    assert str(caught.value).endswith(
        f"row 2 has no bytes, and its file {tmp_path}/out.png does not lie in {tmp_path}/data; the "
        "first rows have bytes; write the bytes into the dataset: ds.save_to_disk() does, and its "
        "folder opens; or leave the column out with columns=(...)"
    )
    dataset = hr.open(path, format=HuggingFace(columns=("label",)))
    assert [sample["label"] for sample in dataset] == [0, 1, 2]


# Folders of `datasets`.


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dataset_info.json", "{}", "{0}/dataset_info.json lists no splits"),
        ("dataset_dict.json", "{}", "it lists no splits"),
        ("dataset_dict.json", '{"splits": ["../x"]}', "it lists no splits"),
        ("state.json", None, "Is a directory"),
    ],
)
def test_folders_of_datasets_without_a_list(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    write(folder / "data.arrow", {"a": pa.array([1, 2])})
    (folder / "dataset_info.json").write_text("{}")
    if text is None:
        (folder / name).mkdir()
    else:
        (folder / name).write_text(text)
    with pytest.raises(errors.DataLossError) as caught:
        hr.open(folder)
    said = str(caught.value)
    assert said.startswith(f"indexing {folder}")
    assert name in said
    assert said.endswith(f": {message.format(folder)}; copy or save the dataset again")


def test_files_that_the_system_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    remedy = "; see what is there with `namei -l PATH`; if its disk fails, copy it again"
    with pytest.raises(errors.FailedPreconditionError) as caught:
        mapped_files.MappedFile(str(tmp_path / "loop"))
    what = f"reading {tmp_path}/loop: Too many levels of symbolic links"
    assert str(caught.value) == what + remedy
    path = write(tmp_path / "a.arrow", {"a": pa.array(["x", "y"])})

    def failing(fd: int, buffers: Any, at: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(mapped_files.os, "preadv", failing)
    with pytest.raises(errors.FailedPreconditionError) as caught:
        hr.open(path)
    disk = "; read the kernel's log (dmesg), and check the disk"
    assert str(caught.value) == f"reading {path}: Input/output error{disk}"


# Objects of `datasets`, which the class stands for here: tests of the package itself are others.


class Indices:
    """The list of rows of a dataset."""

    def __init__(self, numbers: list[int]) -> None:
        self.table = pa.table({"indices": pa.array(numbers, pa.uint64())})


class Features:
    """Those of a dataset."""

    def to_dict(self) -> dict[str, Any]:
        return {}


class Table:
    """The table of a dataset."""

    def __init__(self, table: Any) -> None:
        self.table, self.schema, self.num_rows = table, table.schema, table.num_rows


class Dataset:
    """As much of a `datasets.Dataset` as headrace looks at."""

    def __init__(self, files: list[Path], table: Any, rows: list[int] | None = None) -> None:
        self.cache_files = [{"filename": str(each)} for each in files]
        self.data = Table(table)
        self.column_names = table.column_names
        self.features = Features()
        self._fingerprint = "of-a-test"
        self._indices = None if rows is None else Indices(rows)
        self.format = {
            "type": None,
            "columns": table.column_names,
            "output_all_columns": False,
        }

    def __len__(self) -> int:
        return int(self.data.num_rows)


class IterableDataset:
    """One that is read in order only."""


for made_up in (Dataset, IterableDataset):
    made_up.__module__ = "datasets.of_a_test"


def mapped(path: Path, rows: list[int] | None = None) -> Dataset:
    """A dataset whose table lies in this file, as that of `datasets` does."""
    write(path, {"label": pa.array([3, 4, 5]), "text": pa.array(["a", "b", "c"])})
    with pa.memory_map(str(path)) as source:
        return Dataset([path], pa.ipc.open_stream(source).read_all(), rows)


def test_the_stand_in_opens_as_an_object_of_datasets_does(tmp_path: Path) -> None:
    assert [each["text"] for each in hr.open(mapped(tmp_path / "a.arrow", [2, 0]))] == ["c", "a"]


def test_objects_that_cannot_be_read_in_place(tmp_path: Path) -> None:
    held = pa.table({"text": ["a", "b"]})
    whole = mapped(tmp_path / "a.arrow")
    save = "save it with ds.save_to_disk(folder), and open that folder"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (
            IterableDataset(),
            {},
            "opening a datasets.IterableDataset: it has rows in one order only, and no files to "
            "read at random; load it without streaming=True",
        ),
        (
            Dataset([], held),
            {},
            f"opening a datasets.Dataset of 2 rows: its rows are in memory, in no file; {save}",
        ),
        (
            whole,
            {"format": HuggingFace(split="train")},
            "opening a datasets.Dataset: split='train' was given, but it is one; leave split out",
        ),
        (
            Dataset([tmp_path / "a.arrow"], held),
            {},
            "indexing datasets.Dataset of-a-test: rows from 0: column 'text': its bytes do not lie "
            "in a file as they are (they are in memory, or big-endian); save the dataset with "
            "save_to_disk(), and open that folder",
        ),
        (
            mapped(tmp_path / "b.arrow", [0, 3]),
            {},
            "opening a datasets.Dataset: its list of rows names row 3, its table has 3; select() "
            "the rows again",
        ),
    ]
    for given, options, message in cases:
        with pytest.raises(errors.HeadraceError) as caught:
            hr.open(given, **options)
        assert str(caught.value) == message
    assert np.array_equal([each["label"] for each in hr.open(whole)], [3, 4, 5])


def test_where_the_system_does_not_say_what_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_datasets, "_MAPS", str(tmp_path / "maps"))
    with pytest.raises(errors.FailedPreconditionError) as caught:
        hr.open(mapped(tmp_path / "a.arrow"))
    assert str(caught.value) == (
        f"opening a datasets.Dataset: reading {tmp_path}/maps: No such file or directory; save it "
        "with ds.save_to_disk(folder), and open that folder"
    )
