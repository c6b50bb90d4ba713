"""Samples that cannot be delivered: one clear error at their step, or always the same stand-ins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import order_model as model
import pytest
from loader_data import (
    COUNT,
    FLAT,
    as_bytes,
    epoch_ids,
    flat,
    payload_ids,
    run_python,
    sample_file,
)

import headrace as hr
from headrace import errors

BAD = 23  # the sample that tests spoil


def drain(path: Path | hr.Dataset, **options: Any) -> list[list[int]]:
    with hr.Loader(path, **{"batch_size": 10, "transform": FLAT, "seed": 2} | options) as loader:
        return epoch_ids(loader)


def remove(path: Path) -> None:
    path.unlink()


def replace_by_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/no/where.jpg")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def touch(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))


def rewrite_in_place(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-10] + bytes(10))
    touch(path)


AFTER_INDEXING: list[tuple[Callable[[Path], None], type[Exception], str]] = [
    (remove, errors.NotFoundError, "no such file; put it back, or run `headrace index"),
    (replace_by_dangling_link, errors.NotFoundError, "a link to /no/where.jpg, which is not there"),
    (replace_by_folder, errors.FailedPreconditionError, "changed"),
    (truncate, errors.FailedPreconditionError, "changed"),
    (append, errors.FailedPreconditionError, "changed"),
    (touch, errors.FailedPreconditionError, "changed"),
    (rewrite_in_place, errors.FailedPreconditionError, "changed"),
]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def text(data: bytes) -> bytes:
    return b"<html>not found</html>" * 10


def header_only(data: bytes) -> bytes:
    return data[:4]


BEFORE_INDEXING: list[Callable[[bytes], bytes]] = [half, text, header_only]


def position_of(number: int) -> tuple[int, int]:
    for step, batch in enumerate(model.exact_epoch(COUNT, 10, seed=2)):
        if number in batch:
            return step, batch.index(number)
    raise AssertionError(number)


def check_raises_at_its_step(dataset: hr.Dataset, kind: type[Exception], message: str) -> None:
    """The batches before the bad one come; then the error, which names epoch, step and sample."""
    step, _ = position_of(BAD)
    expected = model.exact_epoch(COUNT, 10, seed=2)
    with hr.Loader(dataset, batch_size=10, transform=FLAT, seed=2) as loader:
        iteration = iter(loader)
        for number in range(step):
            assert payload_ids(next(iteration)) == expected[number]
        with pytest.raises(kind, match=message) as caught:
            next(iteration)
        for part in (f"epoch 0 step {step} sample {BAD}", f"{BAD:03}.jpg"):
            assert part in str(caught.value)
        assert "\n" not in str(caught.value)
        with pytest.raises(StopIteration):
            next(iteration)


@pytest.mark.parametrize(
    ("spoil", "kind", "message"), AFTER_INDEXING, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_file_changed_since_indexing_is_an_error_at_its_step(
    numbered_copy: Path, spoil: Callable[[Path], None], kind: type[Exception], message: str
) -> None:
    dataset = hr.open(numbered_copy)
    spoil(sample_file(numbered_copy, BAD))
    check_raises_at_its_step(dataset, kind, message)


@pytest.mark.parametrize("spoil", BEFORE_INDEXING, ids=lambda spoil: spoil.__name__)
def test_data_that_is_no_image_is_an_error_at_its_step(
    numbered_copy: Path, spoil: Callable[[bytes], bytes]
) -> None:
    path = sample_file(numbered_copy, BAD)
    path.write_bytes(spoil(path.read_bytes()))
    check_raises_at_its_step(hr.open(numbered_copy), errors.DataLossError, "image")


@pytest.mark.filterwarnings("ignore:headrace. indexing:RuntimeWarning")
def test_a_file_of_zero_bytes_fails_at_its_step(numbered_copy: Path) -> None:
    sample_file(numbered_copy, BAD).write_bytes(b"")
    check_raises_at_its_step(
        hr.open(numbered_copy), errors.DataLossError, "0 bytes when the dataset was indexed"
    )


# Without capabilities even root is refused by a file's mode.
WITHOUT_CAPABILITIES = """
import ctypes, sys
import headrace as hr

nothing = (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), nothing) == 0
dataset = hr.open(sys.argv[1])
with hr.Loader(dataset, batch_size=10, seed=2, output="numpy") as loader:
    try:
        for batch in loader:
            pass
    except hr.errors.FailedPreconditionError as error:
        print(error)
"""


def test_an_unreadable_file_is_an_error_at_its_step(numbered_copy: Path) -> None:
    sample_file(numbered_copy, BAD).chmod(0)
    printed = run_python(WITHOUT_CAPABILITIES, numbered_copy)
    assert printed.startswith(f"epoch 0 step {position_of(BAD)[0]} sample {BAD} ")
    assert f"{BAD:03}.jpg" in printed
    assert "Permission denied" in printed


def spoiled_pack(pack: Path, target: Path) -> tuple[hr.Dataset, int]:
    """A copy of a pack with one flipped byte, and the sample that it lies in."""
    target.mkdir()
    for path in pack.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    dataset = hr.open(target)
    bad = 31
    objects, offsets, sizes = dataset.index.extents(0, bad, 1)
    shard = target / dataset.index.object(int(objects[0]))[0]
    stat = shard.stat()
    data = bytearray(shard.read_bytes())
    data[int(offsets[0]) + int(sizes[0]) // 2] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return dataset, bad


def test_a_flipped_byte_in_a_pack_is_found_by_its_checksum(
    source_pack: Path, tmp_path: Path
) -> None:
    dataset, bad = spoiled_pack(source_pack, tmp_path / "pack")
    with (
        hr.Loader(dataset, batch_size=10) as loader,
        pytest.raises(errors.DataLossError, match=rf"sample {bad} .*\.arrow.*checksum"),
    ):
        list(loader)
    with hr.Loader(dataset, batch_size=10, engine=hr.EngineOptions(verify=False)) as loader:
        assert len(list(loader)) == 6
    with hr.Loader(dataset, batch_size=10, on_error="substitute") as loader:
        assert len(list(loader)) == 6
        assert [each["wanted"] for each in loader.stats()["substitutions"]] == [bad]


# Substitutes.


@pytest.fixture
def spoiled(numbered_copy: Path) -> tuple[hr.Dataset, set[int]]:
    """`numbered` with bad samples of several kinds, two of them candidates for another."""
    first, second = model.candidates(COUNT, 2, 0, BAD)[:2]
    bad = {BAD, first, second, 0, COUNT - 1}
    for number in bad:
        path = sample_file(numbered_copy, number)
        path.write_bytes(half(path.read_bytes()))
    dataset = hr.open(numbered_copy)
    sample_file(numbered_copy, 0).unlink()
    return dataset, bad


def stand_in(wanted: int, bad: set[int], epoch: int) -> int:
    return next(c for c in model.candidates(COUNT, 2, epoch, wanted) if c not in bad)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_stand_ins_are_those_that_the_page_says_counted_and_listed(
    spoiled: tuple[hr.Dataset, set[int]], threads: int
) -> None:
    dataset, bad = spoiled
    with hr.Loader(
        dataset,
        batch_size=10,
        transform=FLAT,
        seed=2,
        threads=threads,
        on_error="substitute",
        output=hr.Output(ids=True),
    ) as loader:
        listed = []
        for epoch in range(2):
            wanted = model.exact_epoch(COUNT, 10, seed=2, epoch=epoch)
            expected = [
                [stand_in(s, bad, epoch) if s in bad else s for s in batch] for batch in wanted
            ]
            assert epoch_ids(loader) == expected
            for step, batch in enumerate(wanted):
                for slot, sample in enumerate(batch):
                    if sample in bad:
                        listed.append((epoch, step, slot, sample, expected[step][slot]))
        stats = loader.stats()
    assert stats["substituted"] == len(listed) == 2 * len(bad)
    found = stats["substitutions"]
    keys = ("epoch", "step", "slot", "wanted", "given")
    assert [tuple(each[key] for key in keys) for each in found] == listed
    for each in found:
        assert f"{each['wanted']:03}.jpg" in each["reason"]


@pytest.mark.parametrize("transform", [hr.image.train(16), None], ids=["decoded", "bytes"])
def test_stand_ins_are_the_same_after_a_resume_and_on_every_run(
    numbered_copy: Path, transform: hr.image.ImageTransform | None
) -> None:
    dataset = hr.open(numbered_copy)
    for number in (BAD, 40):
        sample_file(numbered_copy, number).unlink()
    options: dict[str, Any] = {
        "batch_size": 10,
        "transform": transform,
        "seed": 2,
        "on_error": "substitute",
    }
    with hr.Loader(dataset, threads=1, **options) as loader:
        states, batches = [], []
        for batch in loader:
            batches.append(as_bytes(batch))
            states.append(loader.state_dict())
    for done in (1, 4, 9):
        with hr.Loader(dataset, threads=4, **options) as loader:
            loader.load_state_dict(states[done - 1])
            assert list(map(as_bytes, loader)) == batches[done:]


def test_ranks_with_bad_samples_give_equally_many_batches_of_equal_size(
    spoiled: tuple[hr.Dataset, set[int]],
) -> None:
    dataset, bad = spoiled
    shapes = []
    given: list[int] = []
    for rank in range(3):
        batches = drain(dataset, job=hr.Job(rank=rank, world_size=3), on_error="substitute")
        shapes.append([len(batch) for batch in batches])
        given += flat(batches)
    assert shapes[0] == shapes[1] == shapes[2]
    assert set(range(COUNT)) - bad <= set(given)
    assert not bad & set(given)


@pytest.mark.parametrize("kept", [50, 20])
def test_a_dataset_most_of_whose_samples_are_broken_trains(numbered_copy: Path, kept: int) -> None:
    bad = set(range(COUNT)) - set(range(3, COUNT, COUNT // kept))
    for number in bad:
        sample_file(numbered_copy, number).write_bytes(b"no image")
    dataset = hr.open(numbered_copy)
    options: dict[str, Any] = {"transform": FLAT, "seed": 2, "on_error": "substitute"}
    with hr.Loader(dataset, batch_size=10, output=hr.Output(ids=True), **options) as loader:
        found = [epoch_ids(loader) for _ in range(2)]
        replaced = loader.stats()["substituted"]
    for epoch, ids in enumerate(found):
        wanted = model.exact_epoch(COUNT, 10, seed=2, epoch=epoch)
        assert ids == [[stand_in(s, bad, epoch) if s in bad else s for s in x] for x in wanted]
    assert replaced == 2 * len(bad)


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_when_no_stand_in_can_be_delivered_the_step_says_how_many_were_tried(
    numbered_copy: Path, order: Any
) -> None:
    dataset = hr.open(numbered_copy)
    for path in numbered_copy.glob("*/*.jpg"):
        path.unlink()
    says = (
        rf"^epoch 0 step 0 sample \d+ .*; this is the last of {model.CANDIDATES} samples drawn to "
        rf'replace sample \d+ of {COUNT}, the most that on_error="substitute" draws, and all '
        "failed: run `headrace verify --decode`"
    )
    options: dict[str, Any] = {"transform": FLAT, "on_error": "substitute", "order": order}
    with (
        hr.Loader(dataset, batch_size=10, **options) as loader,
        pytest.raises(errors.NotFoundError, match=says),
    ):
        next(iter(loader))


def test_the_pages_name_the_limit_of_stand_ins() -> None:
    for page in ("orders.md", "loader.md"):
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        assert f"up to {model.CANDIDATES} " in text


def test_after_an_error_the_loader_can_be_used_again(numbered_copy: Path) -> None:
    dataset = hr.open(numbered_copy)
    path = sample_file(numbered_copy, BAD)
    good, stat = path.read_bytes(), path.stat()
    path.unlink()
    with hr.Loader(dataset, batch_size=10, transform=FLAT, seed=2) as loader:
        with pytest.raises(errors.NotFoundError):
            list(loader)
        state = loader.state_dict()
        assert (state["epoch"], state["samples"]) == (0, 10 * position_of(BAD)[0])
        path.write_bytes(good)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        loader.load_state_dict(state)
        rest = epoch_ids(loader)
        assert rest == model.exact_epoch(COUNT, 10, seed=2)[position_of(BAD)[0] :]
        assert np.isfinite(loader.stats()["seconds"])
