"""Arrays whose rows are samples: `hr.formats.Arrays`, `hr.formats.Records`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_damage, check_orders, check_rows, check_workers

import headrace as hr
from headrace import errors
from headrace.formats import Arrays, Records
from headrace.formats._files import npy

CIFAR = (("label", "uint8"), ("image", "uint8", (3, 4, 4)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def records(count: int) -> np.ndarray[Any, Any]:
    made = np.zeros(count, np.dtype([(*each,) for each in CIFAR]))
    made["label"] = np.arange(count) % 10
    made["image"] = np.random.default_rng(1).integers(0, 256, made["image"].shape)
    return made


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", "bool", "u4"])
@pytest.mark.parametrize("shape", [(30,), (30, 3), (1, 2, 1, 5), (0, 4)])
def test_rows_of_npy_are_those_of_numpy(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.random.default_rng(2).integers(0, 2, shape).astype(dtype))
    dataset, own = check_rows(path)
    assert (dataset.format, len(own)) == ("arrays", shape[0])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path: Path, version: tuple[int, int]) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.arange(40).reshape(10, 4), version)
    assert len(check_rows(path)[1]) == 10


def test_arrays_of_npz_are_fields_and_small_rows_are_in_the_index(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    draw = np.random.default_rng(2)
    np.savez(path, x=draw.random((50, 3, 4), np.float32), y=np.arange(50), ö=draw.random((50, 2)))
    dataset, _ = check_rows(path)
    assert dataset.fields == ("x", "y", "ö")
    assert [each.is_inline for each in dataset.index.fields] == [False, True, True]


def test_records_are_read_from_npy_and_raw_files(tmp_path: Path) -> None:
    made = records(20)
    np.save(tmp_path / "a.npy", made)
    dataset, _ = check_rows(tmp_path / "a.npy", Arrays(inline=("label",)))
    assert [each.is_inline for each in dataset.index.fields] == [True, False]
    (tmp_path / "a.raw").write_bytes(b"head" + made.tobytes())
    _, own = check_rows(tmp_path / "a.raw", Records(dtype=CIFAR, offset=4))
    assert own[7]["label"] == 7
    check_rows(tmp_path / "a.raw", Records(dtype=CIFAR, offset=4, inline=("label",)))
    check_rows(tmp_path / "a.raw", Records(dtype="float16", offset=0))


def test_padding_between_fields_is_skipped(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    made = np.zeros(9, dtype)
    made["a"], made["b"] = np.arange(9), np.arange(9) / 7
    np.save(tmp_path / "a.npy", made)
    check_rows(tmp_path / "a.npy", Arrays(inline=("a",)))


def test_several_files_are_one_dataset(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"a{number}.npy", np.full((number + 1, 2), number))
    _, own = check_rows(tmp_path / "a{0..2}.npy")
    assert len(own) == 6
    np.save(tmp_path / "a1.npy", np.zeros((2, 3)))
    with pytest.raises(errors.InvalidArgumentError, match="open files of the same fields together"):
        hr.open(tmp_path / "a{0..2}.npy")


def test_every_order_with_tiers_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    draw = np.random.default_rng(2)
    np.savez(path, x=draw.random((50, 6)), y=np.arange(50), z=draw.random((50, 3)))
    dataset, own = check_rows(path)
    check_orders(dataset, own, tmp_path)
    records(50).tofile(tmp_path / "a.raw")
    dataset, own = check_rows(tmp_path / "a.raw", Records(dtype=CIFAR, inline=("label",)))
    (tmp_path / "raw").mkdir()
    check_orders(dataset, own, tmp_path / "raw")


def test_workers_get_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(60.0).reshape(20, 3))
    dataset, own = check_rows(path)
    check_workers(dataset, own)


def with_object(path: Path) -> None:
    np.save(path, np.array([{}, 1], object), allow_pickle=True)


def fortran(path: Path) -> None:
    np.save(path, np.asfortranarray(np.zeros((3, 4))))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (with_object, "it holds Python objects"),
        (fortran, r"stored in Fortran order.*save numpy\.ascontiguousarray"),
        (lambda p: np.save(p, np.zeros(3, ">i4")), r"its values are big-endian \(>i4\); save"),
        (lambda p: np.save(p, np.zeros(3, "<U4")), "have dtype <U4; batches hold int8"),
        (lambda p: np.save(p, np.zeros(3, "complex64")), "have dtype complex64; batches"),
        (lambda p: np.save(p, np.float32(1)), "it holds one number, no rows"),
        (lambda p: np.save(p, np.zeros((3, 0))), r"'value' has shape \[0\]: no bytes"),
        (lambda p: np.save(p, np.zeros((2, 2), [("a", "u1")])), "records must have one dimension"),
        (lambda p: np.save(p, np.zeros(2, [("a", [("b", "u1")])])), "dtype|fields of its own"),
        (lambda p: p.write_bytes(b""), "byte 0: not a .npy file: wrong first bytes; copy or write"),
        (lambda p: p.write_bytes(b"\x93NUMPY\x09\x00zz"), "byte 6: .npy of version 9"),
        (lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{"), "byte 8: its header has 65535"),
    ],
)
def test_what_batches_cannot_hold_is_refused(tmp_path: Path, write: Any, message: str) -> None:
    write(tmp_path / "a.npy")
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(tmp_path / "a.npy")


def other_lengths(path: Path) -> None:
    np.savez(path, x=np.zeros((3, 20)), y=np.zeros(4))


def other_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("note.txt", b"x")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: np.savez_compressed(p, x=np.zeros(3)), r"'x.npy' is compressed.*numpy\.savez"),
        (other_lengths, r"different numbers of rows: \{'x': 3, 'y': 4\}"),
        (other_member, "'note.txt' in it is no array"),
        (lambda p: np.savez(p), "it holds no arrays"),
        (lambda p: np.savez(p, x=np.zeros(3, [("a", "u1")])), "array 'x' holds records"),
        (lambda p: p.write_bytes(b"PK\3\4"), "its directory, at the end of 4 bytes"),
    ],
)
def test_what_a_npz_cannot_hold_is_refused(tmp_path: Path, write: Any, message: str) -> None:
    write(tmp_path / "a.npz")
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Records(), "a raw file does not say its dtype; give it, as"),
        (Records(dtype="nothing"), "records dtype: got 'nothing'"),
        (Records(dtype=">f4"), "its values are big-endian"),
        (Records(dtype="S3"), r"have dtype \|S3; batches hold"),
        (Records(dtype=CIFAR, inline=("colour",)), "inline='colour': its fields are label, image"),
        (Records(dtype=CIFAR, offset=1), "behind byte 1 these are not whole records of 49 bytes"),
        (Records(dtype=CIFAR, offset=10**6), "behind byte 1000000 these are not"),
    ],
)
def test_records_that_cannot_be_are_refused(tmp_path: Path, row: Records, message: str) -> None:
    records(3).tofile(tmp_path / "a.raw")
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(tmp_path / "a.raw", format=row)


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    made = np.arange(600.0).reshape(60, 10)
    path = tmp_path / "damaged.npy"
    np.save(path, made)
    refused = check_damage([path], lambda: hr.open(path), lambda size: range(128), rounds=400)
    assert refused > 200  # Blanks and the sign of a dtype may change.


def test_damage_of_a_zip_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    np.savez(path, x=np.arange(60.0).reshape(6, 10), y=np.arange(6))
    data = path.read_bytes()
    directory = data.rindex(b"PK\1\2x.npy"[:4], 0, data.rindex(b"PK\1\2"))
    refused = check_damage(
        [path],
        lambda: hr.open(path),
        lambda size: [*range(30), *range(min(directory, size - 1), size)],
        rounds=400,
    )
    assert refused > 160


def test_a_header_is_read_though_another_thread_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CPython before 3.11.8 fails then, by chance."""
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    parse, failed = npy.ast.literal_eval, iter(range(3))

    def by_chance(text: str) -> Any:
        if next(failed, None) is not None:
            raise SystemError("AST constructor recursion depth mismatch (before=6, after=4)")
        return parse(text)

    monkeypatch.setattr(npy.ast, "literal_eval", by_chance)
    assert [each["value"].tolist() for each in hr.open(tmp_path / "a.npy")] == [
        *([0, 1], [2, 3], [4, 5]),
    ]
