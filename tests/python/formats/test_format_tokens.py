"""Token files: `hr.formats.Tokens`. The .idx is written here from its specification.

(Megatron's own writer, megatron/core/datasets/indexed_dataset.py, needs its whole package.)
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_damage, check_orders, check_rows, check_workers, loader_of

import headrace as hr
from headrace import errors
from headrace.formats import Tokens
from headrace.formats._tokens import megatron

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tokens(count: int, dtype: str = "uint16") -> np.ndarray[Any, Any]:
    high = min(int(np.iinfo(dtype).max), 2**40)
    return np.random.default_rng(3).integers(0, high, count, dtype=dtype, endpoint=True)


def write_megatron(
    base: Path,
    ids: np.ndarray[Any, Any],
    lengths: list[int],
    documents_at: list[int] | None = None,
) -> None:
    """`documents_at`: the sequence that each document begins with, and the end; None: each one."""
    ids.tofile(base.with_suffix(".bin"))
    sizes = np.array(lengths, "<i4")
    pointers = np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64)]) * ids.itemsize
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    if documents_at is not None:
        documents = np.array(documents_at, "<i8")
    header = megatron.MAGIC + struct.pack(
        "<QBQQ", 1, CODES[ids.dtype.name], len(sizes), len(documents)
    )
    pointers = pointers[: len(sizes)].astype("<i8")
    base.with_suffix(".idx").write_bytes(
        header + sizes.tobytes() + pointers.tobytes() + documents.tobytes()
    )


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
@pytest.mark.parametrize(
    ("window", "stride", "count"),
    [(8, None, 100), (8, 3, 100), (1, 1, 2), (99, None, 100), (100, None, 100), (7, 50, 1)],
)
def test_windows_of_raw_files_are_those_of_a_memory_map(
    tmp_path: Path, dtype: str, window: int, stride: int | None, count: int
) -> None:
    path = tmp_path / "a.bin"
    ids = tokens(count, dtype)
    ids.tofile(path)
    for targets in (True, False):
        row = Tokens(dtype=dtype, window=window, stride=stride, targets=targets)
        needed = window + targets
        if count < needed:
            target = ", and the one behind them" if targets else ""
            numbers = rf"a sample takes {window} tokens{target}; the largest file has {count};"
            with pytest.raises(errors.InvalidArgumentError, match=numbers):
                hr.open(path, format=row)
            continue
        dataset, own = check_rows(path, row)
        assert len(own) == (count - needed) // (stride or window) + 1
        assert own[-1]["tokens"].dtype == np.int64
        assert dataset[-1]["tokens"].tolist() == own[-1]["tokens"].tolist()


def test_an_idx_without_its_bin_is_refused(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a", tokens(25), [25])
    (tmp_path / "a.bin").unlink()
    with pytest.raises(errors.NotFoundError, match=r"a\.bin, are missing; copy both files"):
        hr.open(tmp_path / "a.idx", format=Tokens(window=6))


def test_targets_are_the_next_tokens(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(20, dtype=np.uint16))
    dataset, _ = check_rows(path, Tokens(window=6))
    assert dataset[1]["tokens"].tolist() == [6, 7, 8, 9, 10, 11]
    assert dataset[1]["targets"].tolist() == [7, 8, 9, 10, 11, 12]
    assert "tokens: uint16[6] as int64" in repr(dataset)


def test_batches_may_hold_the_stored_type(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    tokens(100).tofile(path)
    dataset, own = check_rows(path, Tokens(dtype="uint16", window=6, batch_dtype=None))
    assert own[0]["tokens"].dtype == np.uint16
    with loader_of(dataset, "exact") as loader:
        assert next(iter(loader)).tokens.dtype == np.uint16


def test_files_of_megatron_are_recognised_and_read(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a", tokens(90, "int32"), [30, 0, 40, 20])
    for name in ("a.bin", "a.idx"):
        _, own = check_rows(tmp_path / name, Tokens(window=10))
        assert len(own) == 8
    advice = r"give it, as hr\.open\(path, format=hr\.formats\.Tokens\(window=1024\)\)"
    with pytest.raises(errors.InvalidArgumentError, match=advice):
        hr.open(tmp_path / "a.bin")


def test_several_files_are_one_dataset_and_windows_stay_inside_them(tmp_path: Path) -> None:
    for number in range(3):
        write_megatron(tmp_path / f"part-{number}", tokens(25 + number), [25 + number])
    _, own = check_rows(tmp_path / "part-{0..2}.bin", Tokens(window=5))
    assert len(own) == 4 + 5 + 5
    (tmp_path / "part-1.bin").unlink()
    with pytest.raises(errors.NotFoundError, match=r"part-1\.bin: no such file"):
        hr.open(tmp_path / "part-{0..2}.bin", format=Tokens(window=6))


@pytest.mark.parametrize("targets", [True, False])
def test_every_order_with_tiers_and_resumes(tmp_path: Path, targets: bool) -> None:
    path = tmp_path / "a.bin"
    tokens(1000).tofile(path)
    row = Tokens(dtype="uint16", window=50, stride=20, targets=targets)
    dataset, own = check_rows(path, row)
    check_orders(dataset, own, tmp_path)


def test_documents_of_any_length_are_samples(tmp_path: Path) -> None:
    lengths = [30, 0, 70, 20, 0, 60, 20] * 6
    begins = [7 * part + each for part in range(6) for each in (0, 1, 1, 4, 6)]
    write_megatron(tmp_path / "a", tokens(1200), lengths, [*begins, 42, 42])
    for dtype in ("int64", None):
        row = Tokens(documents=True, batch_dtype=dtype)
        dataset, own = check_rows(tmp_path / "a.bin", row)
        assert [len(each["tokens"]) for each in own] == [30, 0, 90, 60, 20] * 6 + [0]
        check_orders(dataset, own, tmp_path)
        check_workers(dataset, own)


@pytest.mark.parametrize("documents_at", [[0, 1, 6], [0], []])
def test_documents_have_to_cover_all_sequences(tmp_path: Path, documents_at: list[int]) -> None:
    write_megatron(tmp_path / "a", tokens(200), [30, 0, 70, 20, 0, 60, 20], documents_at)
    with pytest.raises(errors.DataLossError, match=r"its documents end at sequence \d of 7"):
        hr.open(tmp_path / "a.bin", format=Tokens(documents=True))


@pytest.mark.parametrize("documents_at", [[1, 2, 7], [0, 5, 4, 7], [0, 8], [0, -1, 7]])
def test_documents_have_to_follow_one_another(tmp_path: Path, documents_at: list[int]) -> None:
    write_megatron(tmp_path / "a", tokens(200), [30, 0, 70, 20, 0, 60, 20], documents_at)
    with pytest.raises(errors.DataLossError, match=r"a\.idx: byte \d+: document \d begins at"):
        hr.open(tmp_path / "a.bin", format=Tokens(documents=True))


def test_only_megatron_files_have_documents(tmp_path: Path) -> None:
    tokens(90).tofile(tmp_path / "a.bin")
    with pytest.raises(errors.InvalidArgumentError, match="does not say where documents end"):
        hr.open(tmp_path / "a.bin", format=Tokens(documents=True, dtype="uint16"))
    with pytest.raises(errors.InvalidArgumentError, match="documents=True and a window"):
        Tokens(documents=True, window=5)


def test_workers_get_wide_tokens(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    tokens(1000).tofile(path)
    dataset, own = check_rows(path, Tokens(dtype="uint16", window=50))
    check_workers(dataset, own)


def test_an_index_follows_its_files(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a", tokens(90), [90])
    assert len(hr.open(tmp_path / "a.bin", format=Tokens(window=9))) == 9
    write_megatron(tmp_path / "a", tokens(50), [50])
    assert len(hr.open(tmp_path / "a.bin", format=Tokens(window=9))) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, r"tokens window: got 0, must be in \[1,"),
        ({"window": 8, "stride": 2.5}, "tokens stride: got 2.5, must be an integer"),
        ({"window": 8, "dtype": "float32"}, "tokens dtype: got 'float32', must be one of uint8"),
        ({"window": 8}, "a raw file does not say its dtype; give it, as"),
        ({"window": 8, "dtype": "uint32"}, "not a multiple of the 4 of uint32: it ends inside a t"),
        ({"window": 8, "dtype": "uint16", "batch_dtype": "int16"}, "not a wider type than uint16"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.bin"
    tokens(101).tofile(path)
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(path, format=Tokens(**options))


def test_arrays_that_are_no_tokens_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((3, 4), np.uint16))
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \[3, 4\], tokens have one dim"):
        hr.open(path, format=Tokens(window=2))
    np.save(path, np.zeros(9, np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="it holds float32, tokens are one of"):
        hr.open(path, format=Tokens(window=2))
    np.save(path, np.zeros(9, np.uint16))
    with pytest.raises(errors.InvalidArgumentError, match="it holds uint16, dtype='uint32' was"):
        hr.open(path, format=Tokens(window=2, dtype="uint32"))
    np.save(tmp_path / "b.npy", np.zeros(9, np.uint32))
    with pytest.raises(errors.InvalidArgumentError, match="open files of one dtype together"):
        hr.open(tmp_path / "{a,b}.npy", format=Tokens(window=2))


def test_documents_with_gaps_are_refused(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a", tokens(90), [30, 60])
    data = bytearray((tmp_path / "a.idx").read_bytes())
    data[34 + 8 + 8] += 2  # The second sequence's pointer.
    (tmp_path / "a.idx").write_bytes(data)
    why = (
        r"a\.idx: byte 50: sequence 1 begins at byte 62 of the \.bin, the one before it ends at 60"
    )
    with pytest.raises(errors.InvalidArgumentError, match=why):
        hr.open(tmp_path / "a.bin", format=Tokens(window=9))


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_megatron(tmp_path / "damaged", tokens(300), [30, 60, 0, 110, 100])
    files = [tmp_path / "damaged.idx"]

    def open_it() -> hr.Dataset:
        return hr.open(tmp_path / "damaged.idx", format=Tokens(window=20))

    # All but the list of documents, which windows ignore.
    refused = check_damage(files, open_it, lambda size: range(34 + 12 * 5), rounds=400)
    assert refused > 370


@pytest.mark.parametrize("order", ["exact", "epoch"])
@pytest.mark.parametrize("targets", [True, False])
def test_windows_in_the_page_cache_are_widened_from_the_mapped_file(
    tmp_path: Path, order: str, targets: bool
) -> None:
    window, count = 100, 6000
    path = tmp_path / "a.bin"
    ids = tokens(window * count + 1)  # More than 1 MiB: smaller files are not mapped.
    ids.tofile(path)
    path.read_bytes()  # Into the page cache.
    dataset = hr.open(path, format=Tokens(dtype="uint16", window=window, targets=targets))
    with hr.Loader(
        dataset, 64, order=order, output=hr.Output("numpy", ids=True), drop_last=False
    ) as loader:
        for _ in range(2):
            seen = []
            for batch in loader:
                begins = batch.sample_id * window
                seen += batch.sample_id.tolist()
                wanted = begins[:, None] + np.arange(window)
                assert batch.tokens.dtype == np.int64
                assert (batch.tokens == ids[wanted]).all()
                if targets:
                    assert (batch.targets == ids[wanted + 1]).all()
            assert sorted(seen) == list(range(count))
        io = loader.stats()["io"]
    if order == "epoch" and io["blocks_left"] == 0:
        pytest.skip("the system does not tell what the page cache holds, so nothing is left in it")
