"""Headers in front of raw tokens: those of known writers are skipped, others by `header_bytes=`."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_orders, check_rows, loader_of

import headrace as hr
from headrace import errors
from headrace.formats import Tokens
from headrace.formats.table import with_options

Ids = np.ndarray[Any, Any]


def ids(count: int, dtype: str) -> Ids:
    return np.random.default_rng(4).integers(0, 50_000, count).astype(dtype)


def numbers(magic: int, version: int, tokens: Ids, *more: int) -> bytes:
    """As dev/data/data_common.py of llm.c and tools/nanogpt_data_processor.py of NeMo write it."""
    header = np.zeros(256, "<i4")
    header[: 3 + len(more)] = [magic, version, len(tokens), *more]
    return header.tobytes() + tokens.tobytes()


def packed(tokens: Ids, code: int, chunk: int = 32) -> bytes:
    """As PackedDatasetBuilder of lit-gpt writes it."""
    header = b"LITPKDS" + struct.pack("<Q", 1) + struct.pack("<B", code) + struct.pack("<Q", chunk)
    return header + tokens.tobytes()


WRITERS: dict[str, tuple[str, Callable[[Ids], bytes]]] = {
    "llm.c": ("uint16", lambda tokens: numbers(20240520, 1, tokens)),
    "modded-nanogpt": ("uint16", lambda tokens: numbers(20240520, 1, tokens)),
    "llm.c, Llama 3": ("uint32", lambda tokens: numbers(20240801, 7, tokens)),
    "NeMo": ("uint16", lambda tokens: numbers(278895051, 1, tokens, 2)),
    "NeMo, wide": ("uint32", lambda tokens: numbers(278895051, 1, tokens, 4)),
    "lit-gpt": ("uint16", lambda tokens: packed(tokens, 8)),
    "lit-gpt, int32": ("int32", lambda tokens: packed(tokens, 4)),
}


def write(path: Path, writer: str, count: int = 500) -> Ids:
    dtype, written = WRITERS[writer]
    tokens = ids(count, dtype)
    path.write_bytes(written(tokens))
    return tokens


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dtype", ["given", "found"])
def test_headers_of_known_writers_are_skipped(tmp_path: Path, writer: str, dtype: str) -> None:
    tokens = write(tmp_path / "a.bin", writer)
    given = tokens.dtype.name if dtype == "given" else None
    dataset, own = check_rows(tmp_path / "a.bin", Tokens(window=16, dtype=given))
    assert len(own) == (500 - 17) // 16 + 1
    for number, sample in enumerate(dataset):
        at = 16 * number
        assert sample["tokens"].tolist() == tokens[at : at + 16].tolist()
        assert sample["targets"].tolist() == tokens[at + 1 : at + 17].tolist()


def test_batches_in_every_order_hold_the_tokens(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"t{number}.bin", "llm.c", 200)
    dataset, own = check_rows(tmp_path / "t{0..2}.bin", Tokens(window=8, dtype="uint16"))
    check_orders(dataset, own, tmp_path)


@pytest.mark.parametrize("writer", WRITERS)
def test_files_with_a_header_are_recognised(tmp_path: Path, writer: str) -> None:
    """The remedy is typed as the message has it."""
    path = tmp_path / "a.bin"
    tokens = write(path, writer)
    with pytest.raises(errors.InvalidArgumentError, match="length of a sample") as caught:
        hr.open(path)
    (advised,) = re.findall(r"hr\.open\(path, format=.*?\)\)", str(caught.value))
    path.write_bytes(WRITERS[writer][1](tokens := ids(3000, tokens.dtype.name)))
    dataset = eval(advised, {"hr": hr, "path": path})
    assert dataset[0]["tokens"].tolist() == tokens[:1024].tolist()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int64"])
@pytest.mark.parametrize("front", [0, 1, 24, 1024])
def test_any_header_is_skipped_by_its_bytes(tmp_path: Path, dtype: str, front: int) -> None:
    tokens = ids(100, "uint8").astype(dtype)
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x07" * front + tokens.tobytes())
    row = Tokens(window=4, dtype=dtype, header_bytes=front)
    dataset, _ = check_rows(path, row)
    assert dataset[5]["tokens"].tolist() == tokens[20:24].tolist()
    with loader_of(dataset, "exact", shuffle=False) as loader:
        (batch, *_) = loader
        assert batch.targets[0].tolist() == tokens[1:5].tolist()
    option = with_options("tokens", ["window=4", f"dtype={dtype}", f"header_bytes={front}"])
    assert option == row


@pytest.mark.parametrize("writer", ["llm.c", "lit-gpt"])
def test_what_is_given_comes_before_what_is_recognised(tmp_path: Path, writer: str) -> None:
    write(tmp_path / "a.bin", writer)
    row = Tokens(window=4, dtype="uint16", header_bytes=0)
    dataset, _ = check_rows(tmp_path / "a.bin", row)
    assert dataset[0]["tokens"].tolist() == np.fromfile(tmp_path / "a.bin", "<u2")[:4].tolist()


def test_raw_files_open_as_before(tmp_path: Path) -> None:
    """Also those whose first tokens are like a header. The index has the former options."""
    cases = [ids(100, "uint16"), np.array([55432, 308, 2, 0, *range(100)], np.uint16)]
    cases += [np.array([0x8B1F, 8, *range(100)], np.uint16), np.zeros(3, np.uint16)]
    for number, tokens in enumerate(cases):
        path = tmp_path / f"{number}.bin"
        tokens.tofile(path)
        dataset, _ = check_rows(path, Tokens(window=2, dtype="uint16"))
        assert dataset[0]["tokens"].tolist() == tokens[:2].tolist()
        options = json.loads(dataset.index.attributes["options"])
        assert set(options) == {"batch_dtype", "documents", "dtype", "stride", "targets", "window"}


def test_an_index_from_before_is_made_anew_where_it_takes_a_header_for_tokens(
    tmp_path: Path,
) -> None:
    tokens = write(tmp_path / "a.bin", "llm.c")
    row = Tokens(window=4, dtype="uint16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.formats.tokens.read_header", lambda path: None)
        patch.setattr("headrace.formats.tokens.has_header", lambda path: False)
        before = hr.open(tmp_path / "a.bin", format=row)
    assert before[0]["tokens"].tolist() == [55432, 308, 1, 0]
    assert hr.open(tmp_path / "a.bin", format=row)[0]["tokens"].tolist() == tokens[:4].tolist()


def cut(data: bytes) -> bytes:
    return data[:-4]


@pytest.mark.parametrize(
    ("writer", "change", "message"),
    [
        ("llm.c", cut, r"byte 8: its header says 500 tokens of uint16, 2,024 bytes .* has 2,020;"),
        ("NeMo, wide", lambda data: data + bytes(8), r"500 tokens of uint32, 3,024 bytes .* 3,032"),
        (
            "NeMo",
            lambda data: data[:12] + b"\7" + data[13:],
            "says 7 bytes a token, must be 2 or 4",
        ),
        (
            "lit-gpt",
            lambda data: data[:7] + b"\2" + data[8:],
            "has version 2 and dtype code 8, must",
        ),
        (
            "lit-gpt",
            lambda data: data[:15] + b"\x09" + data[16:],
            "version 1 and dtype code 9, must",
        ),
        (
            "lit-gpt",
            lambda data: data[:15] + b"\x06" + data[16:],
            "it holds float32, tokens are one",
        ),
        ("lit-gpt", lambda data: data[:20], "of a packed dataset has version 1 and dtype code 0"),
        (
            "lit-gpt",
            lambda data: data[:-1],
            "999 bytes of tokens, not a multiple of the 2 of uint16",
        ),
    ],
)
def test_headers_that_do_not_fit_are_refused(
    tmp_path: Path, writer: str, change: Callable[[bytes], bytes], message: str
) -> None:
    write(tmp_path / "a.bin", writer)
    (tmp_path / "a.bin").write_bytes(change((tmp_path / "a.bin").read_bytes()))
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(tmp_path / "a.bin", format=Tokens(window=4))


def test_the_remedy_for_a_header_that_does_not_fit_helps(tmp_path: Path) -> None:
    tokens = write(tmp_path / "a.bin", "llm.c")
    (tmp_path / "a.bin").write_bytes(cut((tmp_path / "a.bin").read_bytes()))
    with pytest.raises(errors.DataLossError) as caught:
        hr.open(tmp_path / "a.bin", format=Tokens(window=4))
    (front, dtype) = re.findall(r"give header_bytes=(\d+) and dtype='(\w+)'", str(caught.value))[0]
    row = Tokens(window=4, header_bytes=int(front), dtype=dtype)
    assert hr.open(tmp_path / "a.bin", format=row)[0]["tokens"].tolist() == tokens[:4].tolist()


def npz(tokens: Ids) -> bytes:
    file = io.BytesIO()
    np.savez(file, tokens)
    return file.getvalue()


def npy(tokens: Ids) -> bytes:
    file = io.BytesIO()
    np.save(file, tokens)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            numbers(20240522, 1, ids(8, "uint16")),
            r"holds no tokens \(number 20240522: evaluation\)",
        ),
        (numbers(20240326, 3, ids(8, "uint16")), "number 20240326: model"),
        (npz(ids(8, "uint16")), "but a zip file"),
        (
            npy(ids(8, "uint16")),
            r"but an array of NumPy; give the file a name that ends with \.npy",
        ),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "compressed; decompress it once with unzstd"),
        (b"MMIDIDX\0\0" + bytes(101), "the index of a Megatron dataset"),
    ],
)
def test_files_of_other_kinds_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        hr.open(path, format=Tokens(window=2, dtype="uint16"))
    assert "give header_bytes=0 if its first bytes are tokens" in str(caught.value)
    dataset = hr.open(path, format=Tokens(window=2, dtype="uint16", header_bytes=0))
    assert dataset[0]["tokens"].tolist() == np.frombuffer(data[:4], "<u2").tolist()


def test_an_array_of_numpy_opens_with_the_name_that_is_advised(tmp_path: Path) -> None:
    tokens = ids(50, "uint16")
    (tmp_path / "a.npy").write_bytes(npy(tokens))
    dataset = hr.open(tmp_path / "a.npy", format=Tokens(window=2))
    assert dataset[3]["tokens"].tolist() == tokens[6:8].tolist()
    with pytest.raises(errors.InvalidArgumentError, match="leave header_bytes= out"):
        hr.open(tmp_path / "a.npy", format=Tokens(window=2, header_bytes=8))


@pytest.mark.parametrize("front", [-1, 2.5, "8", 101])
def test_values_of_header_bytes_that_cannot_be_are_refused(tmp_path: Path, front: Any) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(100))
    with pytest.raises(errors.InvalidArgumentError, match="header_bytes"):
        hr.open(tmp_path / "a.bin", format=Tokens(window=2, dtype="uint8", header_bytes=front))


def test_a_zip_that_is_called_npz_names_its_kind(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", npy(ids(4, "uint16")))
    with pytest.raises(errors.InvalidArgumentError, match="but a zip file"):
        hr.open(tmp_path / "a.npz", format=Tokens(window=2, dtype="uint16"))
