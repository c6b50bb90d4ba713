"""Tiers through the real loader: the same batches whatever is kept where, and fewer reads."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import (
    COUNT,
    FLAT,
    as_bytes,
    epoch_ids,
    flat,
    payload_ids,
    python_command,
    write_tiny,
)

import headrace as hr
from headrace import errors, orders
from headrace.tiers import PLACEMENTS, Budget, Ram, Ssd

pytestmark = pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")

BATCH = 8
CLAIRVOYANT = [name for name in PLACEMENTS if name not in ("none", "lru")]


def room(share: float) -> int:
    """Bytes that hold this share of the samples, each of which takes a page."""
    return int(share * COUNT) * 4096


def make(dataset: Path | hr.Dataset, **options: Any) -> hr.Loader:
    defaults: dict[str, Any] = {"batch_size": BATCH, "transform": FLAT, "seed": 3}
    return hr.Loader(dataset, **defaults | options)


def tiers_for(kind: str, folder: Path, share: float) -> list[Any]:
    capacity = room(share)
    if kind == "ram":
        return [Ram(capacity)]
    if kind == "ssd":
        return [Ssd(folder / "tier", capacity)]
    return [Ram(capacity // 2), Ssd(folder / "a", capacity // 4), Ssd(folder / "b", capacity // 4)]


def wrong(kind: Any, *arguments: Any) -> Any:
    """A tier of arguments that its types do not allow."""
    return kind(*arguments)


@pytest.fixture(scope="session")
def plain(numbered: Path) -> list[list[list[int]]]:
    """What three epochs deliver without tiers."""
    with make(numbered) as loader:
        return [epoch_ids(loader) for _ in range(3)]


@pytest.mark.parametrize("kind", ["ram", "ssd", "several"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_tiers_change_where_bytes_come_from_and_nothing_else(
    numbered: Path, tmp_path: Path, plain: list[list[list[int]]], placement: str, kind: str
) -> None:
    tiers = tiers_for(kind, tmp_path, 0.4)
    with make(numbered, tiers=hr.Cache(tiers, placement=placement)) as loader:
        assert [epoch_ids(loader) for _ in range(3)] == plain
        stats = loader.stats()
    for tier in stats["tiers"]:
        assert tier["peak"] <= tier["capacity"]
        assert tier["corrupt"] == tier["failed"] == 0
        assert tier["degraded"] is None
    if placement != "none":
        assert sum(tier["inserts"] for tier in stats["tiers"]) > 0
    sources = stats["sources"]
    assert sources is not None
    assert sources["fallbacks"] == 0


@pytest.mark.parametrize("order", ["batch", "epoch", "redox"])
@pytest.mark.parametrize("kind", ["ram", "ssd"])
def test_any_order_with_tiers(numbered: Path, tmp_path: Path, order: str, kind: str) -> None:
    spec = {
        "batch": orders.Batch(),
        "epoch": orders.Epoch(pool="60%", pools=2, block_samples=4),
        "redox": orders.Redox(chunks_per_virtual=4, block_samples=5),
    }[order]
    with make(numbered, order=spec) as loader:
        wanted = [epoch_ids(loader) for _ in range(20)]
    tiers = tiers_for(kind, tmp_path, 0.5)
    for placement in ("coordinated", "belady", "lru"):
        with make(numbered, order=spec, tiers=hr.Cache(tiers, placement=placement)) as loader:
            # So little is read ahead of what a tier has by then: the first epochs may not use it.
            for epoch, ids in enumerate(wanted):
                assert epoch_ids(loader) == ids
                if epoch >= 2 and loader.stats()["tiers"][0]["uses"] > 0:
                    break
            assert loader.stats()["tiers"][0]["uses"] > 0


@pytest.mark.parametrize("placement", CLAIRVOYANT)
@pytest.mark.parametrize("kind", ["ram", "ssd"])
def test_a_tier_that_holds_everything_is_read_from_alone(
    numbered: Path, tmp_path: Path, placement: str, kind: str
) -> None:
    with make(
        numbered, tiers=hr.Cache(tiers_for(kind, tmp_path, 3), placement=placement)
    ) as loader:
        epoch_ids(loader)
        epoch_ids(loader)
        before = loader.stats()
        assert flat(epoch_ids(loader))
        after = loader.stats()
    assert before["sources"] is not None
    assert after["sources"] is not None
    # The third epoch was read ahead of partly before; neither it nor the second reads storage.
    assert after["sources"]["storage"] <= COUNT
    assert after["io"]["reads"] == before["io"]["reads"]
    assert after["tiers"][0]["uses"] >= 2 * COUNT - after["sources"]["waited"]


def test_every_rank_has_its_own(numbered: Path, tmp_path: Path) -> None:
    for rank in range(2):
        where = {"job": hr.Job(rank=rank, world_size=2)}
        with make(numbered, **where) as loader:
            wanted = [epoch_ids(loader) for _ in range(3)]
        for placement in PLACEMENTS:
            tiers = [Ram(20_000), Ssd(tmp_path / "shared", 20_000)]
            with make(numbered, tiers=hr.Cache(tiers, placement=placement), **where) as loader:
                assert [epoch_ids(loader) for _ in range(3)] == wanted
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["rank-0", "rank-1"]


@pytest.mark.filterwarnings("ignore:headrace. tiers on 2 nodes")  # These need not meet.
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_every_rank_with_a_sampler_has_its_own(
    numbered: Path, tmp_path: Path, isolation: str
) -> None:
    tiers = [Ssd(tmp_path / "tier", room(0.5))]
    node = hr.Node() if isolation == "process" else None
    shares = [list(range(rank, COUNT, 2)) for rank in range(2)]
    ranks = [hr.Job(rank=rank, world_size=2, node=node) for rank in range(2)]
    with (
        make(numbered, sampler=shares[0], job=ranks[0], tiers=tiers) as zero,
        make(numbered, sampler=shares[1], job=ranks[1], tiers=tiers) as one,
    ):
        for _ in range(3):
            assert [flat(epoch_ids(loader)) for loader in (zero, one)] == shares
    assert sorted(path.name for path in (tmp_path / "tier").iterdir()) == ["rank-0", "rank-1"]


def test_resuming_at_every_step_needs_no_cache_history(
    numbered: Path, tmp_path: Path, plain: list[list[list[int]]]
) -> None:
    sequence = plain[0] + plain[1]
    tiers = tiers_for("several", tmp_path, 0.5)
    for at in range(0, len(sequence), 3):
        with make(numbered, tiers=hr.Cache(tiers, placement="belady")) as loader:
            loader.load_state_dict(make_state(numbered, at, len(plain[0])))
            rest = [payload_ids(batch) for batch in loader]
            if at < len(plain[0]):
                rest += epoch_ids(loader)
        assert rest == sequence[at:]


def make_state(dataset: Path, at: int, steps: int) -> dict[str, Any]:
    with make(dataset) as loader:
        state = loader.state_dict()
    return state | {"epoch": at // steps, "samples": at % steps * BATCH}


def test_a_folder_is_taken_over(numbered: Path, tmp_path: Path) -> None:
    tier = Ssd(tmp_path / "tier", room(2))
    with make(numbered, tiers=[tier]) as loader:
        wanted = flat(epoch_ids(loader))
    with make(numbered, tiers=[tier]) as loader:
        assert flat(epoch_ids(loader)) == wanted
        stats = loader.stats()
    assert stats["io"]["reads"] == 0
    assert stats["tiers"][0]["inherited"] == COUNT
    assert stats["tiers"][0]["reuse"] == stats["tiers"][0]["uses"] >= COUNT


def test_another_dataset_finds_nothing(numbered: Path, folder: Path, tmp_path: Path) -> None:
    tier = Ssd(tmp_path / "tier", room(2))
    with make(numbered, tiers=[tier]) as loader:
        epoch_ids(loader)
    images = hr.Output(fields=["image"])
    plain_options: dict[str, Any] = {"batch_size": 7, "output": images, "shuffle": False}
    with hr.Loader(folder, **plain_options) as loader:
        wanted = [as_bytes(batch) for batch in loader]
    with hr.Loader(folder, tiers=[tier], **plain_options) as loader:
        assert [as_bytes(batch) for batch in loader] == wanted
        assert loader.stats()["tiers"][0]["inherited"] == 0


def test_other_fields_find_nothing(source_pack: Path, tmp_path: Path) -> None:
    tier = Ssd(tmp_path / "tier", "10MB")
    with hr.Loader(source_pack, batch_size=5, tiers=[tier]) as loader:
        wanted = [as_bytes(batch) for batch in loader]
    with pytest.warns(RuntimeWarning, match="tiers= has no effect: 'label' of .* in the index"):
        loader = hr.Loader(source_pack, 5, tiers=[tier], output=hr.Output(fields=["label"]))
    assert sum(1 for _ in loader) == len(wanted)


def flip_bits(folder: Path, step: int) -> None:
    """One bit in every `step` bytes of the largest file."""
    data = max(
        (path for path in folder.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    content = bytearray(data.read_bytes())
    for at in range(step // 2, len(content), step):
        content[at] ^= 1
    data.write_bytes(content)


def test_flipped_bits_are_found_and_refetched(
    numbered: Path, tmp_path: Path, plain: list[list[list[int]]]
) -> None:
    tier = Ssd(tmp_path / "tier", room(2))
    with make(numbered, tiers=[tier]) as loader:
        epoch_ids(loader)
    flip_bits(tmp_path / "tier", 1500)
    with make(numbered, tiers=[tier], engine=hr.EngineOptions(prefetch=1)) as loader:
        assert [epoch_ids(loader) for _ in range(3)] == plain
        stats = loader.stats()
    assert stats["tiers"][0]["corrupt"] > 0
    assert stats["sources"] is not None
    assert stats["sources"]["fallbacks"] == stats["tiers"][0]["corrupt"]
    # Each was read again once, and is there now.
    assert stats["io"]["reads"] == stats["tiers"][0]["corrupt"]


def test_a_folder_removed_in_mid_epoch(
    numbered: Path, tmp_path: Path, plain: list[list[list[int]]]
) -> None:
    tier = Ssd(tmp_path / "tier", room(0.5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with make(numbered, tiers=[tier], engine=hr.EngineOptions(prefetch=1)) as loader:
            got = []
            for epoch in range(3):
                batches = []
                for step, batch in enumerate(loader):
                    batches.append(payload_ids(batch))
                    if (epoch, step) == (1, 3):
                        shutil.rmtree(tmp_path / "tier")
                got.append(batches)
    assert got == plain
    assert sum("tier" in str(each.message) for each in caught) <= 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(mounted)], capture_output=True
    )
    if done.returncode != 0:
        pytest.skip(f"mounting needs root: {done.stderr.decode().strip()}")
    yield mounted
    gc.collect()
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def test_a_full_disk_costs_speed_alone(
    numbered: Path, small_disk: Path, plain: list[list[list[int]]]
) -> None:
    tier = Ssd(small_disk / "tier", room(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with make(numbered, tiers=[tier]) as loader:
            assert [epoch_ids(loader) for _ in range(3)] == plain
            stats = loader.stats()
    assert ["tier" in str(each.message) for each in caught] == [True]
    assert stats["tiers"][0]["degraded"] is not None
    assert 0 < stats["tiers"][0]["inserts"] < COUNT
    # The disk is full of what the tier left: the next run starts all the same.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with make(numbered, tiers=[tier]) as loader:
            assert [epoch_ids(loader) for _ in range(3)] == plain


KILLED = """
import sys
import headrace as hr
from headrace.tiers import Ram, Ssd
tiers = [Ram(20_000), Ssd(sys.argv[2], 60_000)]
image = hr.image.train(8, dtype="uint8")
cache = hr.Cache(tiers, placement=sys.argv[3])
with hr.Loader(sys.argv[1], batch_size=4, seed=3, output="numpy", transform=image,
               tiers=cache) as loader:
    for epoch in range(1000):
        for step, batch in enumerate(loader):
            print(epoch, step, flush=True)
"""


def test_killed_at_any_moment_the_next_run_is_right(numbered: Path, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    with make(numbered) as loader:
        wanted = [epoch_ids(loader) for _ in range(2)]
    hr.open(numbered)  # The children find its index.
    random = np.random.Generator(np.random.PCG64(1))
    for kill in range(20):
        placement = ("belady", "coordinated", "lru", "reuse")[kill % 4]
        process = subprocess.Popen(
            python_command(KILLED, numbered, tier, placement), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(int(random.integers(1, 60))):  # batches taken before it dies
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        tiers = [Ssd(tier, 60_000)]
        with make(numbered, tiers=hr.Cache(tiers, placement=placement)) as loader:
            assert [epoch_ids(loader) for _ in range(2)] == wanted
            stats = loader.stats()
        assert stats["tiers"][0]["corrupt"] == 0
        assert stats["tiers"][0]["peak"] <= 60_000
    # Nothing lies about but the tier, the index cache, and what the fixtures made.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "tier"]
    assert [path.name for path in tier.iterdir()] == ["rank-0"]


def test_two_loaders_want_one_folder(numbered: Path, tmp_path: Path) -> None:
    tier = Ssd(tmp_path / "tier", "1MB")
    with make(numbered, tiers=[tier]), pytest.raises(errors.FailedPreconditionError, match="tier"):
        make(numbered, tiers=[tier])
    make(numbered, tiers=[tier]).close()  # It is free again.


def test_a_sampler_with_tiers(numbered: Path) -> None:
    random = np.random.Generator(np.random.PCG64(2))
    epochs = [random.integers(0, COUNT, 200).tolist() for _ in range(4)]  # with repeats
    for placement in PLACEMENTS:

        class Sampler:
            def __init__(self) -> None:
                self.given = iter(epochs)

            def __iter__(self) -> Iterator[int]:
                return iter(next(self.given))

            def __len__(self) -> int:
                return 200

        tiers = [Ram(room(0.5))]
        with make(
            numbered, sampler=Sampler(), tiers=hr.Cache(tiers, placement=placement)
        ) as loader:
            for wanted in epochs:
                assert flat(epoch_ids(loader)) == wanted
            stats = loader.stats()
        assert (stats["tiers"][0]["uses"] > 0) == (placement != "none")


def test_samples_that_cannot_be_read_are_kept_nowhere(numbered_copy: Path) -> None:
    dataset = hr.open(numbered_copy)
    victim = next(numbered_copy.glob("class1/*.jpg"))
    content = victim.read_bytes()
    stat = victim.stat()
    victim.write_bytes(bytes(len(content)))  # Not a JPEG any more, with the old size and time.
    os.utime(victim, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with make(dataset, tiers=[Ram("1MiB")], on_error="substitute") as loader:
        first, second = epoch_ids(loader), epoch_ids(loader)
        stats = loader.stats()
    bad = int(victim.stem)
    assert bad not in flat(first)
    assert bad not in flat(second)
    assert stats["substituted"] >= 2
    assert stats["tiers"][0]["entries"] <= COUNT - 1


def test_a_dataset_without_stored_fields_has_nothing_to_keep(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.hri", 20)
    with pytest.warns(RuntimeWarning, match="tiers= has no effect: 'label' of .*hri lie in the i"):
        loader = hr.Loader(tmp_path / "tiny.hri", batch_size=6, tiers=[Ram("1MB")])
    assert sum(len(batch.label) for batch in loader) == 20


def test_explain_tells_what_was_planned_and_what_happened(numbered: Path) -> None:
    with make(numbered, tiers=hr.Cache([Ram(room(2))], placement="pinned")) as loader:
        epoch_ids(loader)
        epoch_ids(loader)
        first, second = loader.explain(0, epoch=0), loader.explain(0, epoch=1)
    images = [[row for row in each.rows if row["field"] == "image"] for each in (first, second)]
    assert {row["source"] for row in images[0]} == {"storage"}
    assert {row["actual"] for row in images[0]} == {"storage"}
    assert {row["source"] for row in images[1]} == {"RAM"}
    assert {row["actual"] for row in images[1]} <= {"RAM", "storage"}
    assert "RAM: " in str(second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiers": ["1GiB"]}, r"tiers\[0\]: got '1GiB', must be headrace.tiers.Ram\(capacity\)"),
        ({"tiers": 7}, "tiers: got 7"),
        ({"tiers": [Ram(0)]}, r"tiers\[0\] capacity: got 0"),
        ({"tiers": [Ram("5 apples")]}, "not a number of bytes"),
        ({"tiers": [Ram(10)]}, "RAM tier: got 10 bytes"),
        ({"tiers": [Ram("120%")]}, r"tiers\[0\] capacity: got \"120%\", must be above 0%"),
        ({"tiers": [wrong(Ram, None)]}, r"tiers\[0\] capacity: got None, must be bytes"),
        (
            {"tiers": [Ram("1MB"), wrong(Ssd, "tier", 2.5)]},
            r"tiers\[1\] capacity: got 2.5, must be bytes",
        ),
        ({"tiers": [Ssd("tier", 4095)]}, r"tiers\[0\] capacity: got 4095, must be in \[4096"),
        ({"tiers": [Ssd("", "1MB")]}, r"tiers\[0\]: folder '': the path is empty"),
        ({"tiers": [wrong(Ssd, 5, "1MB")]}, r"tiers\[0\]: folder: got 5, must be a path"),
        ({"tiers": [Ssd("a\0b", "1MB")]}, r"tiers\[0\]: folder .*has no NUL character"),
        ({"tiers": hr.Cache(horizon=3)}, r"horizon=3\) without tiers: "),
        ({"tiers": hr.Cache([Ram("1MB")], placement="magic")}, "placement: got 'magic'"),
        ({"tiers": hr.Cache(placement="belady")}, "without tiers"),
        ({"tiers": hr.Cache([Ram("1MB")], horizon=0)}, "horizon: got 0"),
        ({"tiers": [Ram("1MB")], "engine": hr.EngineOptions(io="synthetic")}, "synthetic"),
        ({"tiers": [Ram("1MB")] * 9}, "tiers: got 9"),
        ({"tiers": [Ram("100MiB")], "memory": "50MiB"}, "tiers= take 100.0 MiB"),
        ({"memory": Budget("1GiB")}, "memory: got a headrace.tiers.Budget, which several"),
        ({"engine": hr.EngineOptions(profile=3)}, "profile: got 3, must be what headrace.profile"),
        (
            {"engine": hr.EngineOptions(profile=".")},
            r"profile \.: cannot be read: Is a directory; give .*; `headrace profile` makes one",
        ),
    ],
)
def test_bad_arguments_are_named(
    numbered: Path,
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        make(numbered, **options)


def test_bad_folders_are_named(numbered: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "tier"):
        with pytest.raises(
            errors.InvalidArgumentError, match="/file is a file, not a folder; name"
        ):
            make(numbered, tiers=[Ssd(path, "1MB")])
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"/link is a symbolic link to .*/gone, not a folder; name",
    ):
        make(numbered, tiers=[Ssd(tmp_path / "link", "1MB")])
    with pytest.raises(errors.InvalidArgumentError, match="making folder /proc/tier"):
        make(numbered, tiers=[Ssd("/proc/tier", "1MB")])
    with make(numbered, tiers=[wrong(Ssd, os.fsencode(tmp_path / "bytes"), "1MB")]):
        assert (tmp_path / "bytes" / "rank-0").is_dir()
    twice = [Ssd(tmp_path / "a", "1MB"), Ssd(tmp_path / "b" / ".." / "a", "1MB")]
    with pytest.raises(errors.InvalidArgumentError, match="given twice"):
        make(numbered, tiers=twice)


def test_a_foreign_file_is_never_touched(numbered: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tier" / "rank-0"
    folder.mkdir(parents=True)
    mine = folder / "thesis.tex"
    mine.write_text("years of work")
    with (
        contextlib.suppress(errors.HeadraceError),
        make(numbered, tiers=[Ssd(tmp_path / "tier", "1MB")]) as loader,
    ):
        epoch_ids(loader)
    assert mine.read_text() == "years of work"


def test_a_folder_among_the_classes_is_refused_before_it_is_made(
    numbered_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(numbered_copy)
    for folder in (numbered_copy, numbered_copy / "cache", tmp_path / "link" / "cache"):
        with pytest.raises(errors.InvalidArgumentError, match="lies in the dataset"):
            make(numbered_copy, tiers=[Ssd(folder, "1MB")])
    assert not (numbered_copy / "cache").exists()
    dataset = hr.open(numbered_copy)
    budget = Budget("64MiB", [Ssd(numbered_copy / "cache", "1MB")])
    with pytest.raises(errors.InvalidArgumentError, match="lies in the dataset"):
        make(dataset, memory=budget.part("all", 1.0))
