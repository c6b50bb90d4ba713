"""Files that are compressed as a whole: `Format.decodes`, `Builder.add_file(coding=)`."""

from __future__ import annotations

import gzip
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from commands import run
from format_checks import check_orders, check_workers

import headrace as hr
from headrace import _core, errors
from headrace._dataset import let_go
from headrace.formats import Builder, Format, Sample, register, table
from headrace.pack import PackParameters, _write, write_pack
from headrace.pack import _gather as gather
from headrace.pack import _work as work

FILES = 5
ROWS = 12  # of a file


def row(number: int) -> bytes:
    return random.Random(number).randbytes(number % 40) + b"abc" * (number % 30)


@dataclass(frozen=True)
class Zipped(Format):
    """A folder of .gz files, and one that is not compressed; each row a number of bytes."""

    name: ClassVar[str] = "zipped"
    opens: ClassVar[str] = "a folder of .rows.gz files"

    def recognises(self, path: str) -> bool:
        return any(Path(path).glob("*.rows.gz"))

    def decodes(self, path: str) -> bool:
        return True

    def fill(self, path: str, builder: Builder) -> None:
        builder.add_field("data", "bytes")
        builder.add_field("number", "array", "int64", inline=True)
        for number, each in enumerate(sorted(Path(path).glob("*.rows*"))):
            sizes = np.array([len(row(number * ROWS + i)) for i in range(ROWS)])
            total = int(sizes.sum())
            if each.suffix == ".gz":
                file = builder.add_file(each, coding="gzip", decoded_bytes=total)
            else:
                file = builder.add_file(each)
            builder.add_extents("data", file, np.cumsum(sizes) - sizes, sizes)
            builder.add_values("number", np.arange(number * ROWS, (number + 1) * ROWS))
            builder.add_blocks([ROWS], file, 0, total)

    def own_samples(self, path: str) -> list[Sample]:
        return [{"data": row(i), "number": np.int64(i)} for i in range(FILES * ROWS)]


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FORMATS", table.FORMATS)
    register(Zipped())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(FILES):
        data = b"".join(row(number * ROWS + i) for i in range(ROWS))
        if number == 3:
            (folder / f"{number}.rows").write_bytes(data)
        else:
            (folder / f"{number}.rows.gz").write_bytes(gzip.compress(data, mtime=0))
    return folder


def test_samples_are_those_of_the_decoded_files(folder: Path, tmp_path: Path) -> None:
    dataset = hr.open(folder)
    own = Zipped().own_samples(str(folder))
    assert [each["data"] for each in dataset] == [each["data"] for each in own]
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)
    with hr.Loader(dataset, 7, job=hr.Job(node=hr.Node()), output=hr.Output(ids=True)) as loader:
        rows = {int(n): bytes(d) for batch in loader for d, n in zip(*batch[:2], strict=True)}
    assert rows == {i: row(i) for i in range(FILES * ROWS)}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """An index of three files that decode to 4 MiB each, in rows of 4 KiB that say their number."""
    with Builder(tmp_path / "large.hri", root=tmp_path, decodes=True) as builder:
        builder.add_field("row", "array", "int64", (512,))
        for number in range(3):
            rows = np.repeat(np.arange(1024) + 1024 * number, 512)
            path = tmp_path / f"{number}.gz"
            path.write_bytes(gzip.compress(rows.tobytes(), 1, mtime=0))
            file = builder.add_file(path, coding="gzip", decoded_bytes=rows.nbytes)
            builder.add_extents("row", file, np.arange(1024) * 4096, 4096)
            builder.add_blocks([1024], file, 0, rows.nbytes)
        builder.set_attribute("format", "test")
    return tmp_path / "large.hri"


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_memory_bounds_what_is_decoded_and_the_error_says_the_least(
    large: Path, order: Any
) -> None:
    def make(memory: str | None) -> hr.Loader:
        return hr.Loader(large, 64, order=order, memory=memory, output="numpy")

    with pytest.raises(
        errors.InvalidArgumentError, match=r"decoded as a whole take 8.* MiB"
    ) as few:
        make("6MiB")
    found = re.search(r"raise memory= to at least ([\d.]+) MiB", str(few.value))
    assert found is not None
    least = float(found[1])
    with pytest.raises(errors.InvalidArgumentError):
        make(f"{least - 1}MiB")
    for memory in (f"{least}MiB", f"{2 * least}MiB", None):
        with make(memory) as loader:
            seen = np.concatenate([batch.row[:, 7].copy() for batch in loader])
            used = loader.stats()["memory"]
        assert sorted(seen.tolist()) == list(range(3072))
        assert used["decoded_budget"] >= 8 << 20
        assert 4 << 20 <= used["decoded_peak"] <= used["decoded_budget"]
        uses = ("staging", "batches", "resident", "pinned", "scratch", "results", "decoded")
        if memory is not None:
            limit = float(memory.removesuffix("MiB")) * 2**20
            assert sum(used[f"{use}_budget"] for use in uses) <= limit  # type: ignore[literal-required]
    assert "decoded" in str(hr.Loader(large, 64, order=order).stats())


def first(sample: hr.Sample) -> int:
    return int(sample.row[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_get_every_sample_once(large: Path, workers: int) -> None:
    options: dict[str, Any] = {"order": "epoch", "memory": "64MiB", "workers": workers}
    with hr.Loader(large, 64, transform=first, **options) as loader:
        for _ in range(2):
            assert sorted(int(number) for batch in loader for number in batch) == list(range(3072))


def test_every_store_of_a_node_process_has_its_part_of_memory(large: Path) -> None:
    with hr.Loader(large, 64, memory="32MiB", job=hr.Job(node=hr.Node())) as loader:
        assert sum(len(batch.row) for batch in loader) == 3072
        used = loader.stats()["memory"]
    assert 8 << 20 <= used["decoded_budget"] <= 16 << 20
    assert 4 << 20 <= used["decoded_peak"] <= used["decoded_budget"]


def test_a_sample_is_read_without_decoding_its_file_again(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = hr.open(large)
    assert dataset[5]["row"][0] == 5
    (large.parent / "0.gz").unlink()  # Decoded before.
    assert dataset[6]["row"][0] == 6
    let_go(dataset)
    with pytest.raises(errors.NotFoundError, match=r"reading .*0\.gz bytes .*: no such file"):
        dataset.read(7)


def test_a_profile_measures_the_files_as_they_are_stored(large: Path, tmp_path: Path) -> None:
    done = run("profile", large, "--seconds", "0.2", "--output", tmp_path / "machine.toml")
    assert "storage was measured with their stored bytes" in " ".join(done.stdout.split())
    assert "storage (decoded)" not in done.stdout
    storage = hr.profile.load(tmp_path / "machine.toml").storage
    packed = max(path.stat().st_size for path in large.parent.glob("*.gz"))
    assert storage.reads == "ranges"
    assert max(line.read_bytes for line in storage.rates) <= packed


def files_of(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


SMALL_SHARDS = PackParameters(shard_bytes=3 << 20)


@pytest.fixture
def kept_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if little of what is decoded were kept, so that a shuffled pack gathers."""
    monkeypatch.setattr(_core, "decoded_bytes_kept", 10 << 20)


@pytest.mark.parametrize("piece", [1 << 30, 5 << 20, 1 << 20, 100_000])
def test_a_shuffled_pack_of_more_than_is_kept_decodes_each_file_once(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    write_pack(hr.open(large), tmp_path / "a.pack", SMALL_SHARDS)
    monkeypatch.setattr(_core, "decoded_bytes_kept", 10 << 20)
    monkeypatch.setattr(gather, "PIECE_BYTES", piece)
    read: list[int] = []
    own = gather.Gathered._read

    def noted(self: Any, reader: Any, entries: Any) -> Any:
        read.extend(np.unique(self._objects[entries]).tolist())
        return own(self, reader, entries)

    monkeypatch.setattr(gather.Gathered, "_read", noted)
    told: list[tuple[int, int]] = []
    dataset = hr.open(large)
    write_pack(dataset, tmp_path / "b.pack", SMALL_SHARDS, progress=lambda *at: told.append(at))
    assert read == sorted(read)  # One after the other, so each is decoded once.
    assert sorted(set(read)) == [0, 1, 2]
    assert told[-1] == (24 << 20, 24 << 20)  # gathered, then written
    assert files_of(tmp_path / "a.pack") == files_of(tmp_path / "b.pack")
    assert len(files_of(tmp_path / "b.pack")) > 4


def test_gathering_with_little_room_takes_several_passes(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pack(hr.open(large), tmp_path / "a.pack", SMALL_SHARDS)
    monkeypatch.setattr(_core, "decoded_bytes_kept", 10 << 20)
    for module in (_write, work):
        monkeypatch.setattr(module, "free_bytes", lambda folder: (12 << 20) + (6 << 20))
    passes: list[int] = []
    own = gather.Gathered.__init__

    def noted(self: Any, index: Any, shards: Any, folder: Path) -> None:
        passes.append(len(shards))
        own(self, index, shards, folder)

    monkeypatch.setattr(gather.Gathered, "__init__", noted)
    write_pack(hr.open(large), tmp_path / "b.pack", SMALL_SHARDS)
    assert len(passes) > 1
    assert max(passes) == 2
    assert files_of(tmp_path / "a.pack") == files_of(tmp_path / "b.pack")


def test_a_stopped_pack_goes_on_behind_its_finished_shards(
    large: Path, tmp_path: Path, kept_little: None
) -> None:
    write_pack(hr.open(large), tmp_path / "a.pack", SMALL_SHARDS)

    def stop(done: int, total: int) -> None:
        if done > 20 << 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pack(hr.open(large), tmp_path / "b.pack", SMALL_SHARDS, workers=1, progress=stop)
    assert not list((tmp_path / ".b.pack.partial").glob("gathered*"))
    result = write_pack(hr.open(large), tmp_path / "b.pack", SMALL_SHARDS)
    assert result.shards_continued >= 2
    assert files_of(tmp_path / "a.pack") == files_of(tmp_path / "b.pack")


def test_what_was_gathered_is_compared_when_it_is_read(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_little: None
) -> None:
    own = gather.Gathered.fill

    def damaged(self: Any, *given: Any) -> None:
        own(self, *given)
        (byte,) = os.pread(self._fd, 1, 5 << 20)
        os.pwrite(self._fd, bytes([byte ^ 1]), 5 << 20)

    monkeypatch.setattr(gather.Gathered, "fill", damaged)
    with pytest.raises(errors.DataLossError, match="other bytes than were gathered; the disk"):
        write_pack(hr.open(large), tmp_path / "b.pack")


def test_a_pack_of_them_and_verification(folder: Path, tmp_path: Path) -> None:
    write_pack(hr.open(folder), tmp_path / "pack")
    packed = {int(each["number"]): each["data"] for each in hr.open(tmp_path / "pack")}
    assert packed == {i: row(i) for i in range(FILES * ROWS)}


def test_epoch_decodes_each_file_once(folder: Path) -> None:
    with hr.Loader(folder, 6, order="epoch", seed=3) as loader:
        assert sum(len(batch.number) for batch in loader) == FILES * ROWS
        stats = loader.stats()
    assert stats["io"]["store"].startswith("decoded")


def test_a_store_for_plain_files_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'threads' does not read objects"):
        hr.Loader(folder, 6, engine=hr.EngineOptions(io="threads"))


def test_a_file_that_changed_is_an_error_that_names_it(folder: Path) -> None:
    dataset = hr.open(folder)
    path = folder / "1.rows.gz"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(errors.FailedPreconditionError, match=rf"{path} .*file changed since"):
        dataset.read(ROWS)


def test_damage_is_an_error_that_names_the_file(folder: Path) -> None:
    """The size and time of the file are those of the index: only its bytes differ."""
    draw = random.Random(5)
    path = folder / "2.rows.gz"
    good = path.read_bytes()
    failures = 0
    for _ in range(200):
        data = bytearray(good)
        data[draw.randrange(10, len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        dataset = hr.open(folder)
        message = ""
        try:
            found = [dataset.read(2 * ROWS + i)["data"] for i in range(ROWS)]
        except errors.DataLossError as error:
            message = str(error)
            failures += 1
            found = [row(2 * ROWS + i) for i in range(ROWS)]
        assert not message or str(path) in message
        assert found == [row(2 * ROWS + i) for i in range(ROWS)]
    assert failures > 150


def test_inspect_and_errors_of_the_builder(folder: Path, tmp_path: Path) -> None:
    with Builder(tmp_path / "a.hri", root=folder, decodes=True) as builder:
        with pytest.raises(errors.InvalidArgumentError, match="needs decoded_bytes"):
            builder.add_file(folder / "0.rows.gz", coding="gzip")
        with pytest.raises(errors.InvalidArgumentError, match="must be one of"):
            builder.add_file(folder / "0.rows.gz", coding="lz4", decoded_bytes=3)  # type: ignore[arg-type]
        builder.add_field("n", "array", "int8", inline=True)
        builder.add_values("n", np.arange(3))
    plain = Builder(tmp_path / "b.hri", root=folder)
    with pytest.raises(errors.InvalidArgumentError, match="made with decodes=True"):
        plain.add_file(folder / "0.rows.gz", coding="gzip", decoded_bytes=3)
    plain.discard()
    hri = tmp_path / "c.hri"
    hr.open(folder, index=hri)
    assert "sample 0" in run("inspect", hri).stdout
    run("verify", hri)


def test_bytes_are_decoded_for_builders() -> None:
    data = b"some bytes" * 100
    packed = gzip.compress(data)
    assert _core.decode_bytes("gzip", packed, len(data)).tobytes() == data
    with pytest.raises(errors.DataLossError, match="the index says 999"):
        _core.decode_bytes("gzip", packed, 999)
    with pytest.raises(errors.InvalidArgumentError, match="coding 'lz4'"):
        _core.decode_bytes("lz4", packed, 999)


def test_a_store_of_compressed_files_refuses_other_data(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("data", "bytes")
        builder.add_extents("data", builder.add_file(tmp_path / "a.bin"), [0], [3])
    for io in ("decoded", "rowgroups"):
        with pytest.raises(errors.FailedPreconditionError, match="reads only objects of"):
            hr.Loader(tmp_path / "a.hri", 1, engine=hr.EngineOptions(io=io))  # type: ignore[arg-type]
