"""Tiers that hold images decoded: the same batches, bit for bit, whatever they hold."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import python_command
from PIL import Image

import headrace as hr
from headrace import _core, errors
from headrace._dataset import image_sizes as sizes_module
from headrace._dataset.image_sizes import image_sizes
from headrace._loading.options import LoaderArguments, core_options
from headrace._loading.planned import planned_epochs, total_bytes, total_reads
from headrace.tiers import Budget, Ram, Ssd

COUNT = 61
BATCH = 7
LARGE, TIFF, DAMAGED = 5, 11, 17
"""Samples: a JPEG that is scaled while it is decoded; a TIFF; one without a header."""
TRAIN = hr.image.train(32)
EVERYTHING = 64 * 2**20


def texture(number: int, width: int, height: int) -> Image.Image:
    """Slopes with grain, so that a wrong pixel shows."""
    random = np.random.Generator(np.random.PCG64(number))
    coarse = random.integers(0, 255, (height // 9 + 1, width // 9 + 1, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height))).astype(int)
    return Image.fromarray(
        (smooth + random.integers(-9, 9, smooth.shape)).clip(0, 255).astype(np.uint8)
    )


def write_images(root: Path) -> Path:
    """Class folders of photographs of every kind and size."""
    random = np.random.Generator(np.random.PCG64(1))
    for number in range(COUNT):
        folder = root / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        width, height = (int(side) for side in random.integers(40, 260, 2))
        options: dict[str, Any] = {"quality": 90, "progressive": number % 9 == 0}
        if number == LARGE:
            width, height = 600, 520
        if number % 4 == 1:
            options["exif"] = b"Exif\0\0" + bytes(5000)
        image = texture(number, width, height)
        if number % 6 == 2:
            image = image.convert("L")
        kind = {3: "png", 5: "webp"}.get(number % 10, "jpg")
        kind = {LARGE: "jpg", TIFF: "tiff"}.get(number, kind)
        image.save(folder / f"{number:03}.{kind}", **(options if kind == "jpg" else {}))
    return root


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> hr.Dataset:
    return hr.open(write_images(tmp_path_factory.mktemp("decoded") / "images"))


def make(dataset: hr.Dataset, **options: Any) -> hr.Loader:
    defaults: dict[str, Any] = {
        "batch_size": BATCH,
        "transform": TRAIN,
        "seed": 3,
        "output": "numpy",
        "memory": 200 * 2**20,
    }
    return hr.Loader(dataset, **defaults | options)


def payload(batch: Any) -> tuple[bytes, bytes]:
    return batch.image.tobytes(), batch.label.tobytes()


def epochs(loader: hr.Loader, count: int = 3) -> list[list[tuple[bytes, bytes]]]:
    return [[payload(batch) for batch in loader] for _ in range(count)]


def decoded_bytes(dataset: hr.Dataset, transform: Any = TRAIN) -> np.ndarray[Any, Any]:
    """Of each sample's entry."""
    sizes = image_sizes(dataset, "image")
    forms = _core.form_bytes(sizes.widths, sizes.heights, transform.to_core())
    stored = dataset.index.extents(dataset.fields.index("image"))[2]
    return np.where(forms > 0, forms, stored)


@pytest.mark.parametrize("order", ["exact", "batch"])
@pytest.mark.parametrize("placement", ["coordinated", "belady", "lru", "pinned"])
@pytest.mark.parametrize("share", [0.3, 2.0])
def test_batches_are_the_same_bit_for_bit(
    images: hr.Dataset, order: Any, placement: Any, share: float
) -> None:
    capacity = int(share * decoded_bytes(images).sum())
    with make(images, order=order) as loader:
        wanted = epochs(loader)
    tiers = hr.Cache(Ram(capacity, form="decoded"), placement=placement)
    with make(images, order=order, tiers=tiers) as loader:
        assert epochs(loader) == wanted
        stats = loader.stats()
    (tier,) = stats["tiers"]
    assert tier["uses"] > 0
    assert tier["peak"] <= tier["capacity"] <= capacity
    assert tier["corrupt"] == tier["failed"] == stats["sources"]["fallbacks"] == 0
    if share > 1:
        assert tier["refused"] == stats["sources"]["not_kept"] == 0


@pytest.mark.parametrize(
    "transform",
    [
        hr.image.train(32, dtype="uint8", layout="NHWC"),
        hr.image.train(48, scale=(0.9, 1.0), exact=True),
        hr.image.evaluate(32),
        hr.image.resize(40),
    ],
    ids=["bytes", "exact", "evaluate", "resize"],
)
@pytest.mark.parametrize("seed", [0, 2**40 + 1])
def test_every_transform_of_every_seed(images: hr.Dataset, transform: Any, seed: int) -> None:
    with make(images, transform=transform, seed=seed) as loader:
        wanted = epochs(loader)
    tiers = Ram(EVERYTHING, form="decoded")
    with make(images, transform=transform, seed=seed, tiers=tiers) as loader:
        assert epochs(loader) == wanted
        assert loader.stats()["tiers"][0]["entries"] == COUNT


@pytest.mark.parametrize("order", ["exact", "batch"])
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("step", [1, 3])
def test_a_restored_job_goes_on_with_and_without_the_tier(
    images: hr.Dataset, order: Any, world: int, step: int
) -> None:
    tiers = Ram(EVERYTHING // 16, form="decoded")
    for rank in range(world):
        job = hr.Job(rank=rank, world_size=world)
        with make(images, order=order, job=job, batch_size=4) as loader:
            wanted = [each for epoch in epochs(loader) for each in epoch]
        with make(images, order=order, job=job, batch_size=4, tiers=tiers) as loader:
            first = epochs(loader, 1)[0]
            second = iter(loader)
            first += [payload(next(second)) for _ in range(step)]
            state = loader.state_dict()
        assert first == wanted[: len(first)]
        for again in (tiers, None):
            with make(images, order=order, job=job, batch_size=4, tiers=again) as loader:
                loader.load_state_dict(state)
                rest = [each for epoch in epochs(loader, 2) for each in epoch]
            assert rest == wanted[len(first) :]


def test_a_tier_counts_decoded_bytes(images: hr.Dataset) -> None:
    entries = decoded_bytes(images)
    with make(images, tiers=Ram(EVERYTHING, form="decoded"), epochs=3) as loader:
        epochs(loader)
        (tier,) = loader.stats()["tiers"]
    assert tier["entries"] == COUNT
    assert entries.sum() <= tier["used"] <= entries.sum() + 4096 * COUNT
    # Each sample is used as often as the others, but for what was read ahead of its insert.
    assert entries.sum() <= tier["use_bytes"] <= 2 * entries.sum()
    stored = images.index.extents(images.fields.index("image"))[2]
    assert tier["use_bytes"] > 2 * stored.sum()


def test_a_plan_has_the_sizes_of_what_the_tier_holds(images: hr.Dataset) -> None:
    entries = decoded_bytes(images)

    def planned(capacity: int) -> list[Any]:
        arguments = LoaderArguments(
            batch_size=BATCH, transform=TRAIN, tiers=Ram(capacity, form="decoded"), epochs=3
        )
        options = core_options(images, arguments, native=TRAIN)
        return list(planned_epochs(_core.EpochPlanner(images.index, options)))

    first, second, _ = planned(EVERYTHING)
    assert total_reads(first.tiers[0][1]) >= COUNT
    assert entries.sum() <= total_bytes(first.tiers[0][1]) <= entries.sum() + 4096 * COUNT
    assert second.storage == []
    assert entries.sum() <= total_bytes(second.tiers[0][0]) <= entries.sum() + 4096 * COUNT
    half = int(entries.sum()) // 2
    written = [total_bytes(epoch.tiers[0][1]) for epoch in planned(half)]
    assert 0 < written[0] <= half


def test_an_image_that_may_be_scaled_stays_as_stored(images: hr.Dataset) -> None:
    sizes = image_sizes(images, "image")
    (large,) = np.flatnonzero(sizes.widths == 600)
    plain = _core.form_bytes(sizes.widths, sizes.heights, TRAIN.to_core())
    assert plain[large] == 0
    exact = _core.form_bytes(sizes.widths, sizes.heights, hr.image.train(32, exact=True).to_core())
    assert exact[large] == 8 + 3 * 600 * 520
    assert np.count_nonzero(plain) == COUNT - 2  # And the TIFF.
    assert np.count_nonzero(sizes.widths == 0) == 1


def test_the_sizes_are_those_of_pillow(images: hr.Dataset) -> None:
    sizes = image_sizes(images, "image")
    for number in range(COUNT):
        pixels = Image.open(io.BytesIO(images[number]["image"]))
        wanted = (0, 0) if pixels.format == "TIFF" else pixels.size
        assert (sizes.widths[number], sizes.heights[number]) == wanted


def test_sizes_are_read_once_for_a_dataset(
    images: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_sizes(images, "image")
    monkeypatch.setattr(sizes_module, "_look", lambda *_: pytest.fail("read again"))
    for _ in range(2):
        make(images, tiers=Ram(EVERYTHING, form="decoded")).close()


@pytest.fixture
def damaged(tmp_path: Path) -> hr.Dataset:
    """One image is truncated, one has no header, one has been removed since it was indexed."""
    root = write_images(tmp_path / "damaged")
    files = sorted(root.glob("*/*.jpg"))
    files[3].write_bytes(files[3].read_bytes()[:-700])
    files[8].write_bytes(b"\xff\xd8\xff\xe0no header" * 100)
    dataset = hr.open(root)
    files[20].unlink()
    return dataset


def test_what_cannot_be_decoded_is_replaced_as_without_the_tier(damaged: hr.Dataset) -> None:
    with make(damaged, on_error="substitute") as loader:
        wanted = epochs(loader)
    tiers = Ram(EVERYTHING, form="decoded")
    with make(damaged, on_error="substitute", tiers=tiers) as loader:
        assert epochs(loader) == wanted
        assert loader.stats()["tiers"][0]["uses"] > 0


def test_too_little_memory_for_decodes_costs_hits_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "large"
    for number in range(12):
        folder = root / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        texture(number, 1400, 1200).save(folder / f"{number}.jpg", quality=60, progressive=True)
    dataset = hr.open(root)
    options: dict[str, Any] = {
        "transform": hr.image.train(64, exact=True),
        "batch_size": 2,
        "threads": 2,
    }
    with make(dataset, memory="200MB", **options) as loader:
        wanted = epochs(loader, 2)
    tiers = Ram("70MB", form="decoded")
    with make(dataset, memory="140MB", tiers=tiers, **options) as loader:
        assert epochs(loader, 2) == wanted


def changed(sample: hr.Sample) -> Any:
    return sample.image + 1, sample.label


@pytest.mark.parametrize("workers", [0, 1])
def test_a_python_transform_gets_the_same_rows(images: hr.Dataset, workers: int) -> None:
    options: dict[str, Any] = {"transform": (TRAIN, changed), "workers": workers}
    with make(images, **options) as loader:
        wanted = [[tuple(part.tobytes() for part in batch) for batch in loader] for _ in range(3)]
    with make(images, tiers=Ram(EVERYTHING, form="decoded"), **options) as loader:
        got = [[tuple(part.tobytes() for part in batch) for batch in loader] for _ in range(3)]
        assert got == wanted
        assert loader.stats()["tiers"][0]["uses"] > 0


def test_parts_of_a_budget_have_tiers_of_its_form(images: hr.Dataset) -> None:
    budget = Budget(memory=200 * 2**20, tiers=Ram(EVERYTHING, form="decoded"))
    with make(images) as loader:
        wanted = epochs(loader)
    with make(images, memory=budget.part("train", 0.5)) as loader:
        assert epochs(loader) == wanted
        assert loader.stats()["tiers"][0]["use_bytes"] > decoded_bytes(images).sum()


def refusals(tmp_path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    decoded = Ram(EVERYTHING, form="decoded")
    yield (
        {"tiers": Ram(EVERYTHING, form="pixels")},  # type: ignore[arg-type]
        "tiers[0] form: got 'pixels', must be one of 'stored', 'decoded'",
    )
    for tiers in ([decoded, Ssd(tmp_path / "tier", "1MB")], [decoded, Ram("1MB")]):
        yield {"tiers": tiers}, "tiers: form='decoded' beside other tiers: one in memory is all"
    for order in ("epoch", "redox"):
        yield (
            {"tiers": decoded, "order": order},
            f"tiers: form='decoded' with order='{order}': samples pass through its pool",
        )
    for transform in (None, payload):
        yield (
            {"tiers": decoded, "transform": transform},
            "tiers: form='decoded': 0 fields have a transform of headrace.image, must be one",
        )


def test_what_is_not_supported_is_refused(images: hr.Dataset, tmp_path: Path) -> None:
    for options, message in refusals(tmp_path):
        with pytest.raises(errors.InvalidArgumentError) as caught:
            make(images, **options)
        assert str(caught.value).startswith(message), str(caught.value)


def test_nodes_that_send_each_other_samples_are_refused(
    images: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", "a secret of this test")
    node = hr.Node(local_rank=0, local_world_size=1, addresses=["127.0.0.1:1", "127.0.0.1:2"])
    job = hr.Job(rank=0, world_size=2, node=node)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        make(images, tiers=Ram(EVERYTHING, form="decoded"), job=job)
    assert str(caught.value) == (
        "tiers: form='decoded' on several nodes: what these send each other is as stored; give "
        "Job(node=False), so that each rank reads storage itself, or leave form out"
    )


_RANK = """
import hashlib, sys
import headrace as hr
path, rank, form = sys.argv[1], int(sys.argv[2]), sys.argv[3]
job = hr.Job(rank=rank, world_size=2, node=hr.Node(local_rank=rank, local_world_size=2))
tiers = hr.tiers.Ram("4MB", form=form)
options = {"transform": hr.image.train(32), "seed": 3, "output": "numpy", "memory": "200MB"}
with hr.Loader(path, 4, job=job, tiers=tiers, epochs=3, **options) as loader:
    for _ in range(3):
        for image, label in loader:
            print(hashlib.sha1(image.tobytes() + label.tobytes()).hexdigest())
    assert loader.stats()["tiers"][0]["uses"] > 0
"""


def test_ranks_of_a_node_process_share_a_tier(
    images: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for form in ("stored", "decoded"):
        monkeypatch.setenv("MASTER_PORT", f"test-{os.getpid()}-{form}")
        ranks = [
            subprocess.Popen(
                python_command(_RANK, images.path, rank, form), stdout=subprocess.PIPE, text=True
            )
            for rank in range(2)
        ]
        found[form] = [rank.communicate(timeout=100)[0].split() for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0]
    assert found["decoded"] == found["stored"]
    assert min(len(rank) for rank in found["stored"]) >= 3 * (COUNT // 8)
