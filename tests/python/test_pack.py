"""Packs: equal to their source, the same however they come about, whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace import _core, errors
from headrace.cli._checks import verify as _verify
from headrace.pack import PackParameters, write_pack
from headrace.pack import _plan as plan
from headrace.pack import _shard as shard

SMALL = PackParameters(block_bytes=30_000, shard_bytes=100_000)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rows(pack: Path) -> list[tuple[bytes, int]]:
    """Every row, as pyarrow alone reads it."""
    found = []
    for path in sorted(pack.glob("*.arrow")):
        table = pa.ipc.open_file(path).read_all()
        found += list(zip(table["image"].to_pylist(), table["label"].to_pylist(), strict=True))
    return found


def source_rows(dataset: hr.Dataset) -> list[tuple[bytes, int]]:
    samples = [dataset.read(number) for number in range(len(dataset))]
    return [(sample["image"], int(sample["label"])) for sample in samples]


@pytest.mark.parametrize("order", ["source", "shuffled"])
def test_rows_are_those_of_the_source_in_the_order_asked_for(
    original: Path, tmp_path: Path, order: str
) -> None:
    source = hr.open(original)
    target = tmp_path / "pack"
    result = write_pack(
        source, target, PackParameters(order=order, block_bytes=30_000, shard_bytes=100_000)
    )
    expected = source_rows(source)
    assert result.samples == 60
    assert result.shards > 2
    assert result.blocks > result.shards
    assert result.data_bytes == sum(len(image) for image, _ in expected)
    if order == "source":
        assert rows(target) == expected
    else:
        permuted = _core.permutation(60, 0, 0, 4).tolist()
        assert sorted(permuted) == list(range(60)) != permuted
        assert rows(target) == [expected[sample] for sample in permuted]
    pack = hr.open(target)
    assert source_rows(pack) == rows(target)  # the index says the same as the files
    assert pack.classes == source.classes
    assert pack.format == "pack"
    assert _verify.verify(pack).ok


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_keep_their_bits(tmp_path: Path, dtype: str) -> None:
    """Also those that are not equal to themselves, or are equal to others."""
    bits = np.dtype(dtype.replace("float", "uint"))
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5], dtype)
    values = np.append(values, (values.view(bits)[:1] + bits.type(1)).view(dtype))  # another NaN
    vectors = np.stack([values, values[::-1], values], axis=1)
    np.savez(tmp_path / "a.npz", one=values, three=vectors, stored=np.zeros((len(values), 40)))
    write_pack(hr.open(tmp_path / "a.npz"), tmp_path / "pack", PackParameters(order="source"))
    packed = list(hr.open(tmp_path / "pack"))
    for name, wanted in (("one", values), ("three", vectors)):
        found = np.array([sample[name] for sample in packed])
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes()


def test_another_seed_is_another_order(original: Path, tmp_path: Path) -> None:
    source = hr.open(original)
    for seed in (0, 1):
        write_pack(source, tmp_path / str(seed), PackParameters(seed=seed))
    assert rows(tmp_path / "0") != rows(tmp_path / "1")
    fingerprints = {hr.open(tmp_path / str(seed)).fingerprint for seed in (0, 1)}
    assert len(fingerprints) == 2


def test_a_block_is_one_aligned_read_within_the_size_asked_for(
    original: Path, tmp_path: Path
) -> None:
    target = tmp_path / "pack"
    write_pack(hr.open(original), target, SMALL)
    index = hr.open(target).index
    first_samples, counts, objects, offsets, sizes, checksums = index.blocks()
    assert checksums is not None
    assert (offsets % 4096 == 0).all()
    assert (sizes <= SMALL.block_bytes).all()
    sample_objects, sample_offsets, sample_sizes = index.extents(0)
    for block in range(index.block_count):
        first, last = int(first_samples[block]), int(first_samples[block] + counts[block])
        assert (sample_objects[first:last] == objects[block]).all()
        assert sample_offsets[first] == offsets[block]
        ends = sample_offsets[first:last] + sample_sizes[first:last]
        assert ends[-1] == offsets[block] + sizes[block]
        assert (ends[:-1] == sample_offsets[first + 1 : last]).all()
        data = (target / index.object(int(objects[block]))[0]).read_bytes()
        start = int(offsets[block])
        assert _core.hash64(data[start : start + int(sizes[block])]) == checksums[block]


def test_blocks_can_be_counted_in_samples(original: Path, tmp_path: Path) -> None:
    write_pack(hr.open(original), tmp_path / "pack", PackParameters(block_samples=8))
    counts = hr.open(tmp_path / "pack").index.blocks()[1]
    assert counts.tolist() == [8] * 7 + [4]


def test_a_sample_larger_than_a_block_is_a_block_of_its_own(original: Path, tmp_path: Path) -> None:
    write_pack(
        hr.open(original), tmp_path / "pack", PackParameters(block_bytes=1, shard_bytes=50_000)
    )
    index = hr.open(tmp_path / "pack").index
    assert index.block_count == 60
    assert sorted(rows(tmp_path / "pack")) == sorted(source_rows(hr.open(original)))


def test_bytes_do_not_depend_on_workers(original: Path, tmp_path: Path) -> None:
    source = hr.open(original)
    for workers in (1, 2, 4):
        write_pack(source, tmp_path / str(workers), SMALL, workers=workers)
    first = contents(tmp_path / "1")
    assert len(first) > 3
    assert contents(tmp_path / "2") == first
    assert contents(tmp_path / "4") == first


def test_a_pack_of_a_pack_is_checked_and_a_copied_pack_is_the_same(
    original: Path, tmp_path: Path
) -> None:
    write_pack(hr.open(original), tmp_path / "a", SMALL)
    write_pack(hr.open(tmp_path / "a"), tmp_path / "b", PackParameters(order="source"))
    assert rows(tmp_path / "b") == rows(tmp_path / "a")
    before = hr.open(tmp_path / "a").fingerprint
    for path in (tmp_path / "a").iterdir():
        os.utime(path, ns=(1, 1))
    (tmp_path / "a").rename(tmp_path / "moved")
    moved = hr.open(tmp_path / "moved")
    assert moved.fingerprint == before
    assert _verify.verify(moved).ok


def test_a_sample_damaged_in_a_source_pack_is_not_packed(original: Path, tmp_path: Path) -> None:
    write_pack(hr.open(original), tmp_path / "a", SMALL)
    flip(hr.open(tmp_path / "a"), 7)
    with pytest.raises(errors.DataLossError, match=r"packing sample 7 \(image\)"):
        write_pack(hr.open(tmp_path / "a"), tmp_path / "b", SMALL)
    assert not (tmp_path / "b").exists()


FINE = PackParameters(block_bytes=10_000, shard_bytes=30_000)
PACK_AND_DIE = """
import os, signal, sys
import headrace as hr
from headrace.pack import PackParameters, write_pack
left = int(sys.argv[3])
def progress(done, total):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
write_pack(hr.open(sys.argv[1]), sys.argv[2], PackParameters(block_bytes=10_000,
    shard_bytes=30_000), workers=2, progress=progress)
"""


def test_killed_at_any_point_and_run_again_the_bytes_are_the_same(
    original: Path, tmp_path: Path
) -> None:
    expected = write_pack(hr.open(original), tmp_path / "expected", FINE)
    target = tmp_path / "pack"
    steps = random.Random(11)
    # Progress reports a block before the next one begins: half of all are several shards.
    for after in (expected.blocks // 2, *(steps.randrange(1, 12) for _ in range(3))):
        done = subprocess.run(
            [sys.executable, "-c", PACK_AND_DIE, original, target, str(after)], check=False
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        assert not target.exists()
    if not target.exists():
        assert write_pack(hr.open(original), target, FINE).shards_continued > 0
    assert contents(target) == contents(tmp_path / "expected")
    assert not list(tmp_path.glob(".*"))


def interrupted(original: Path, target: Path) -> None:
    """Leaves the finished shards of a run that was stopped after its first one."""
    seen = 0

    def progress(done: int, total: int) -> None:
        nonlocal seen
        seen += 1
        if done > total * 0.8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pack(hr.open(original), target, SMALL, workers=1, progress=progress)
    assert not target.exists()
    assert (target.parent / f".{target.name}.partial").is_dir()


def test_a_restart_with_other_parameters_says_which_and_what_to_do(
    original: Path, tmp_path: Path
) -> None:
    target = tmp_path / "pack"
    interrupted(original, target)
    other = PackParameters(seed=4, block_bytes=30_000, shard_bytes=100_000)
    with pytest.raises(errors.InvalidArgumentError, match=r"seed 0 then, 4 now.*--restart"):
        write_pack(hr.open(original), target, other)
    assert write_pack(hr.open(original), target, other, restart=True).shards_continued == 0
    write_pack(hr.open(original), tmp_path / "expected", other)
    assert contents(target) == contents(tmp_path / "expected")


def test_a_run_that_finished_nothing_leaves_nothing(original: Path, tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_pack(hr.open(original), tmp_path / "pack", progress=progress)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize("stage", ["before", "after"])
def test_killed_while_publishing_an_overwrite_the_next_run_finishes_it(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    from headrace.pack import _partial as partial

    class Killed(BaseException):
        pass

    target = tmp_path / "pack"
    source = hr.open(original)
    write_pack(source, target, PackParameters(seed=9))
    old = contents(target)
    exchange = partial._exchange

    def kill(new: Path, current: Path) -> None:
        if stage == "after":
            exchange(new, current)
        raise Killed

    monkeypatch.setattr(partial, "_exchange", kill)
    with pytest.raises(Killed):
        write_pack(source, target, SMALL, overwrite=True)
    assert (contents(target) == old) == (stage == "before")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_pack(source, target, SMALL, overwrite=True)
    write_pack(source, tmp_path / "expected", SMALL)
    assert contents(target) == contents(tmp_path / "expected")
    assert not list(tmp_path.glob(".*"))


def test_a_file_system_that_can_not_exchange_folders_renames_twice(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        @staticmethod
        def renameat2(*arguments: object) -> int:
            ctypes.set_errno(errno.EINVAL)
            return -1

    target = tmp_path / "pack"
    source = hr.open(original)
    write_pack(source, target, PackParameters(seed=9))
    monkeypatch.setattr(ctypes, "CDLL", lambda *a, **k: Libc)
    write_pack(source, target, SMALL, overwrite=True)
    write_pack(source, tmp_path / "expected", SMALL)
    assert contents(target) == contents(tmp_path / "expected")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("where", ["sample", "label", "offsets", "cut"])
def test_what_reads_back_otherwise_than_written_is_never_published(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    write_pack(hr.open(original), tmp_path / "good")
    index = hr.open(tmp_path / "good").index
    start, size = (int(column[0]) for column in index.blocks()[3:5])
    verify = shard.ShardWriter._verify

    def damage(self: shard.ShardWriter, path: str, *rest: Any) -> shard.Shard:
        data = bytearray(Path(path).read_bytes())
        if where == "cut":
            data = data[:-100]
        else:
            data[
                {"sample": start + 100, "label": start + size + 12, "offsets": start - 8}[where]
            ] ^= 1
        Path(path).write_bytes(data)
        return verify(self, path, *rest)

    monkeypatch.setattr(shard.ShardWriter, "_verify", damage)
    with pytest.raises(errors.DataLossError, match=r"verifying .*shard-00000"):
        write_pack(hr.open(original), tmp_path / "pack")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "good"]


def test_what_is_there_is_not_touched_unless_asked(original: Path, tmp_path: Path) -> None:
    source = hr.open(original)
    target = tmp_path / "pack"
    write_pack(source, target, SMALL)
    before = contents(target)
    with pytest.raises(errors.InvalidArgumentError, match=r"exists already.*--overwrite"):
        write_pack(source, target, PackParameters(seed=2))
    assert contents(target) == before
    write_pack(source, target, PackParameters(seed=2), overwrite=True)
    assert contents(target) != before
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "dear.jpg").write_bytes(b"1")
    with pytest.raises(errors.InvalidArgumentError, match="is not a pack, so it is not replaced"):
        write_pack(source, photos, overwrite=True)
    with pytest.raises(errors.NotFoundError, match="there is no folder"):
        write_pack(source, tmp_path / "a" / "b")


def test_two_runs_on_one_target_do_not_meet(original: Path, tmp_path: Path) -> None:
    source = hr.open(original)
    target = tmp_path / "pack"
    tried = False

    def progress(done: int, total: int) -> None:
        nonlocal tried
        if not tried:
            tried = True
            with pytest.raises(errors.FailedPreconditionError, match="another headrace pack"):
                write_pack(source, target, SMALL)

    write_pack(source, target, SMALL, progress=progress)
    assert tried
    assert _verify.verify(hr.open(target)).ok


def test_a_source_file_changed_since_indexing_is_named(folder: Path, tmp_path: Path) -> None:
    source = hr.open(folder)
    changed = folder / "bee" / "003.jpg"
    changed.write_bytes(changed.read_bytes()[:-1])
    with pytest.raises(errors.FailedPreconditionError, match=r"bee/003\.jpg .*file changed"):
        write_pack(source, tmp_path / "pack", SMALL)
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"order": "random"}, '"shuffled" or "source"'),
        ({"seed": -1}, "pack seed: got -1"),
        ({"block_samples": 0}, "pack block_samples: got 0"),
        ({"block_bytes": 100, "shard_bytes": 10}, "less than one block"),
    ],
)
def test_wrong_parameters_are_named(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=says):
        PackParameters(**arguments)  # type: ignore[arg-type]


def flip(pack: hr.Dataset, sample: int) -> None:
    """Changes one bit of the image of `sample`."""
    objects, offsets, sizes = pack.index.extents(0, sample, 1)
    path = Path(pack.index.root) / pack.index.object(int(objects[0]))[0]
    data = bytearray(path.read_bytes())
    data[int(offsets[0]) + int(sizes[0]) // 2] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_is_found_and_its_sample_named(original: Path, tmp_path: Path) -> None:
    write_pack(hr.open(original), tmp_path / "pack", SMALL)
    pack = hr.open(tmp_path / "pack")
    for sample in (11, 42):
        flip(pack, sample)
    report = _verify.verify(pack)
    assert [problem.sample for problem in report.problems] == [11, 42]
    assert "sample 11 (image): " in report.problems[0].message
    assert ".arrow bytes [" in report.problems[0].message
    with pytest.raises(errors.DataLossError, match=r"reading sample 11 \(image\)"):
        pack.read(11)
    assert pack.read(10)["image"]


def test_a_flipped_label_in_the_arrow_file_is_found(original: Path, tmp_path: Path) -> None:
    write_pack(hr.open(original), tmp_path / "pack")
    (path,) = (tmp_path / "pack").glob("*.arrow")
    index = hr.open(tmp_path / "pack").index
    *_, offsets, sizes, _ = index.blocks()
    data = bytearray(path.read_bytes())
    data[int(offsets[-1] + sizes[-1]) + 16] ^= 1
    path.write_bytes(data)
    (problem,) = _verify.verify(hr.open(tmp_path / "pack")).problems
    assert "its samples are good, but other bytes of the file" in problem.message


def test_a_truncated_and_a_missing_shard_are_named(original: Path, tmp_path: Path) -> None:
    write_pack(hr.open(original), tmp_path / "pack", SMALL)
    first, second, *_ = sorted((tmp_path / "pack").glob("*.arrow"))
    first.write_bytes(first.read_bytes()[:-10])
    second.unlink()
    messages = [problem.message for problem in _verify.verify(hr.open(tmp_path / "pack")).problems]
    assert len(messages) == 2
    assert first.name in messages[0]
    assert "changed since it was indexed" in messages[0]
    assert messages[0].endswith("; copy or create the pack again")
    assert f"{second.name}: no such file; put it back, or copy" in messages[1]


def test_fields_of_any_type_survive(tmp_path: Path) -> None:
    values = {
        "mask": np.arange(12) % 3 == 0,
        "box": np.arange(48, dtype=np.float32).reshape(12, 2, 2),
        "half": np.arange(12, dtype=np.float16),
    }
    texts = [b"x" * n for n in range(12)]  # one of them empty
    (tmp_path / "texts.bin").write_bytes(b"".join(texts))
    sizes = np.array([len(text) for text in texts], np.uint64)
    ends = np.cumsum(sizes, dtype=np.uint64)
    contents_ = _core.IndexContents(12, str(tmp_path))
    contents_.add_objects(["texts.bin"], ends[-1:].copy(), np.zeros(1, np.int64))
    contents_.add_inline_field("mask", ("array", "bool", []), values["mask"])
    extents = (np.zeros(12, np.uint64), ends - sizes, sizes)
    contents_.add_extent_field("text", ("bytes", "uint8", []), extents)
    contents_.add_inline_field("box", ("array", "float32", [2, 2]), values["box"])
    contents_.add_extent_field("again", ("bytes", "uint8", []), extents)
    contents_.add_inline_field("half", ("array", "float16", []), values["half"])
    _core.write_index(contents_, str(tmp_path / "source.hri"))
    parameters = PackParameters(order="source", block_samples=5)
    write_pack(hr.open(tmp_path / "source.hri"), tmp_path / "pack", parameters)
    (path,) = (tmp_path / "pack").glob("*.arrow")
    table = pa.ipc.open_file(path).read_all()
    assert table["text"].to_pylist() == table["again"].to_pylist() == texts
    assert table["mask"].to_pylist() == values["mask"].tolist()
    assert np.array_equal(table["box"].combine_chunks().to_numpy_ndarray(), values["box"])
    pack = hr.open(tmp_path / "pack")
    for number in range(12):
        sample = pack.read(number)
        assert sample["text"] == sample["again"] == texts[number]
        assert np.array_equal(sample["box"], values["box"][number])
        assert sample["half"] == values["half"][number]
        assert sample["mask"] == values["mask"][number]
    assert _verify.verify(pack).ok


def test_blocks_are_cut_before_they_pass_the_limit() -> None:
    sizes = np.array([5, 5, 5, 20, 1, 1, 9], np.uint64)
    assert plan._cut(sizes, 10).tolist() == [0, 2, 3, 4, 6, 7]
    assert plan._cut(sizes, 1000).tolist() == [0, 7]
    assert plan._cut(sizes[:1], 1).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"on": "ray"}, "pack on: got 'ray', must be what headrace.ray.pack_tasks() returns, or"),
        (
            {"on": lambda work: {}, "workers": 2},
            "pack workers: got 2 beside on=: give the number to headrace.ray.pack_tasks(workers=2)",
        ),
    ],
)
def test_what_writes_the_shards_is_given_alone(
    folder: Path, tmp_path: Path, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        write_pack(hr.open(folder), tmp_path / "pack", **arguments)
    assert str(raised.value).startswith(says)


def test_a_path_is_no_dataset_to_pack(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be a dataset") as raised:
        write_pack(str(folder), tmp_path / "pack")  # type: ignore[arg-type]
    assert "write_pack(headrace.open(...), ...)" in str(raised.value)
