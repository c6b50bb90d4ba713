"""Folder datasets of torchvision, the real modules: the engine reads their files ahead, and every
batch is what torch gives."""

from __future__ import annotations

import io
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from folder_data import COUNT, fixed, read_ahead, write_images
from map_data import WAYS, plain
from PIL import Image
from torch.utils.data import ConcatDataset, Subset, random_split

from headrace.errors import FailedPreconditionError
from headrace.torch import DataLoader, sample_rng
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.native import folders
from headrace.torch._dataloader.reading.file_contents import FileContent, ImageLoader, offered


def random(image: Image.Image) -> tuple[torch.Tensor, float]:
    return fixed(image) + torch.rand(3, 4, 4), float(sample_rng().random())


def seeded(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Own(torch.utils.data.Sampler[int]):
    """The keys of another sampler, by a class of the user's: workers read."""

    def __init__(self, keys: Sequence[int]) -> None:
        self.keys = keys
        self.drawn = 0

    def __iter__(self) -> Iterator[int]:
        for key in self.keys:
            self.drawn += 1
            yield key

    def __len__(self) -> int:
        return len(self.keys)


def data_of(name: str, vision: Any, images: Path, more: Path) -> Any:
    first = vision.ImageFolder(images, fixed)
    if name == "all":
        return first
    if name == "split":
        return random_split(Subset(first, range(3, COUNT)), [20, 18], generator=seeded())[1]
    second = vision.ImageFolder(str(more), fixed, target_transform=lambda label: -label)
    if name == "joined":
        return ConcatDataset([second, first])
    return Subset(ConcatDataset([Subset(first, [5, -2, 9]), second, first]), [-1, *range(30), 2])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["all", "split", "joined", "nested"])
def test_every_way_to_read_gives_what_torch_gives(
    name: str, shuffle: bool, vision: Any, images: Path, more: Path
) -> None:
    data = data_of(name, vision, images, more)
    for way, options in WAYS.items():
        persist = options if way == "persistent" else {}  # Their base seed is drawn once.
        theirs = torch.utils.data.DataLoader(
            data, 8, shuffle=shuffle, generator=seeded(), **persist
        )
        expected = [[plain(batch) for batch in theirs] for _ in range(2)]
        del theirs
        ours = DataLoader(data, 8, shuffle=shuffle, generator=seeded(), **options)
        assert [[plain(batch) for batch in ours] for _ in range(2)] == expected, way
        if name in ("all", "split"):
            assert read_ahead(ours) == 2 * len(data), way
        else:
            assert read_ahead(ours) > 0, way
        ours.close()


def test_no_file_is_read_by_the_dataset(
    vision: Any, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> Any:
        raise AssertionError(f"read {path}")

    monkeypatch.setattr(vision, "default_loader", refused)
    data = vision.ImageFolder(images, fixed, loader=refused)
    with pytest.raises(AssertionError, match="read"):
        data[0]
    for way, options in WAYS.items():
        ours = DataLoader(data, 8, shuffle=True, **options)
        assert sum(len(labels) for _, labels in ours) == COUNT, way
        ours.close()


@pytest.mark.parametrize("way", ["threads", "processes", "pool"])
def test_what_samples_draw_is_the_same_with_and_without_the_engine(
    way: str, vision: Any, images: Path
) -> None:
    data = vision.ImageFolder(images, random)
    keys = torch.randperm(COUNT, generator=seeded()).tolist()
    found = []
    for sampler in (keys, Own(keys)):
        loader = DataLoader(data, 8, sampler=sampler, generator=seeded(), **WAYS[way])
        draws = [batch[0][1].tolist() for batch in loader]
        if way == "processes":  # Others share torch's generator.
            draws += [batch[0][0].tolist() for batch in loader]
        found.append(draws)
        assert (read_ahead(loader) > 0) == (sampler is keys)
        loader.close()
    assert found[0] == found[1]


def test_a_class_of_the_users_and_a_collate_fn(vision: Any, images: Path) -> None:
    class Indexed(vision.ImageFolder):  # type: ignore[misc]
        def __getitem__(self, number: int) -> Any:
            image, label = super().__getitem__(number)
            other, _ = super().__getitem__((number + 1) % COUNT)  # A file that is not next.
            return {"image": image, "other": other, "label": label, "number": number}

    data = Indexed(images, fixed)
    theirs = torch.utils.data.DataLoader(data, 8, collate_fn=list)
    for way, options in WAYS.items():
        ours = DataLoader(data, 8, collate_fn=list, **options)
        assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs], way
        assert read_ahead(ours) == COUNT
        ours.close()


@pytest.mark.parametrize("way", ["direct", "processes"])
def test_a_file_that_is_gone_is_the_datasets_own_error(
    way: str, vision: Any, tmp_path: Path
) -> None:
    root = write_images(tmp_path / "images", COUNT, 1)
    data = vision.ImageFolder(root, fixed)
    loader = DataLoader(data, 4, **WAYS[way])
    expected = [plain(batch) for batch in loader]
    Path(data.samples[9][0]).unlink()
    Image.new("RGB", (300, 300), (9, 0, 0)).save(data.samples[21][0])
    iterator = iter(loader)
    found: list[Any] = []
    for number in range(len(loader)):
        if number == 2:
            with pytest.raises(FileNotFoundError, match=Path(data.samples[9][0]).name) as caught:
                next(iterator)
            assert "reading sample 9 (batch 2 slot 1)" in repr(caught.value) + str(
                getattr(caught.value, "__notes__", "")
            )
            found.append(expected[2])
            del caught
        else:
            found.append(plain(next(iterator)))
    assert found[:5] == expected[:5]
    assert found[6:] == expected[6:]
    pixels = fixed(Image.open(data.samples[21][0]).convert("RGB")).tolist()
    assert found[5][1][0][2][1] == pixels
    loader.close()


def test_what_the_user_changes_between_epochs_counts(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)
    loader = DataLoader(data, 8, num_workers=2, worker_method="thread")
    for _ in range(2):
        theirs = torch.utils.data.DataLoader(data, 8)
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in theirs]
        data.samples[3] = data.samples[7]
        data.samples.append(data.samples[0])
        data.transform = lambda image: fixed(image) // 2
    loader.close()


def test_it_goes_on_at_every_step(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)

    def made(way: str) -> DataLoader:
        return DataLoader(data, 8, shuffle=True, generator=seeded(), **WAYS[way])

    first = made("threads")
    expected = [[plain(batch) for batch in first] for _ in range(2)]
    first.close()
    for step in range(len(expected[0]) + 1):
        loader = made("direct")
        iterator = iter(loader)
        for _ in range(step):
            next(iterator)
        state = loader.state_dict()
        loader.close()
        again = made("processes" if step == 3 else "threads")
        again.load_state_dict(state)
        assert [plain(batch) for batch in again] == (expected[0][step:] or expected[1])
        assert read_ahead(again) == sum(
            len(batch[1][1][2]) for batch in expected[0][step:] or expected[1]
        )
        again.close()


def test_two_iterations_at_once(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)
    loader = DataLoader(data, 8, num_workers=2, worker_method="thread")
    expected = [plain(batch) for batch in loader]
    one = iter(loader)
    found = [plain(next(one))]
    assert [plain(batch) for batch in loader] == expected
    assert found + [plain(batch) for batch in one] == expected
    loader.close()


def test_an_iteration_that_is_left_leaves_the_next_its_engine(vision: Any, images: Path) -> None:
    loader = DataLoader(vision.ImageFolder(images, fixed), 8, num_workers=2, worker_method="thread")
    for _ in range(3):
        next(iter(loader))
    before = read_ahead(loader)
    assert sum(1 for _ in loader) == 6
    assert read_ahead(loader) == before + COUNT
    loader.close()


def test_what_the_engine_cannot_decode_as_the_dataset_does_is_read_by_it(
    vision: Any, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = vision.ImageFolder(images, fixed, loader=lambda path: Image.open(path).convert("RGB"))
    known = vision.ImageFolder(images, fixed)
    expected = [plain(batch) for batch in torch.utils.data.DataLoader(known, 8)]
    for data in (own, ConcatDataset([Subset(known, range(8)), own])):
        loader = DataLoader(data, 8)
        assert [plain(batch) for batch in loader][-6:] == expected
        assert read_ahead(loader) == 0
    monkeypatch.setattr(sys.modules["torchvision"], "get_image_backend", lambda: "accimage", False)
    assert not folders._is_folder(known)


def test_a_sampler_of_the_users_is_drawn_as_late_as_by_torch(vision: Any, images: Path) -> None:
    sampler = Own(range(COUNT))
    loader = DataLoader(vision.ImageFolder(images, fixed), 2, sampler=sampler, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    assert sampler.drawn == 2 * (2 * 2 + 1)
    del iterator


class Epoch:
    """Progress of an epoch of one batch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.drawn = Drawn(0, [0], place=0, rows=1, mark="", snapshot=None)
        self.left = [None, self.drawn]

    def draw(self) -> Drawn | None:
        return self.left.pop()


class Hangs:
    """A Loader's reader, and the batches of one that wait until it is closed."""

    def __init__(self) -> None:
        self.waits, self.is_released = threading.Event(), threading.Event()
        self.is_closed = self.is_busy = False
        self.readers = [self]

    def wanted(self, keys: Sequence[int]) -> list[Any]:
        return [folders._Wanted(slot=0, leaf=0, number=0, path="a")]

    def begin(self, batches: Sequence[list[int]], epoch: int) -> Iterator[Any]:
        return self  # type: ignore[return-value]

    def __next__(self) -> Any:
        self.waits.set()
        self.is_released.wait()
        raise FailedPreconditionError("it was closed")

    def close(self) -> None:
        self.is_closed = True
        self.is_released.set()


def test_a_read_that_hangs_does_not_keep_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_END_SECONDS", 0.01)
    reader: Any = Hangs()
    progress: Any = Epoch()
    supply = folders._FolderSupply(reader, progress)
    assert supply.draw() is progress.drawn
    lane = threading.Thread(target=supply.contents, args=(0, 0, 1))
    lane.start()
    reader.waits.wait()
    supply.forget(0)  # The loop goes on meanwhile.
    supply.close()
    assert reader.is_closed
    lane.join()


def test_a_loader_that_takes_contents_can_be_sent_to_a_process() -> None:
    loader = pickle.loads(pickle.dumps(ImageLoader(plain)))
    assert loader("a") == plain("a")
    content = io.BytesIO()
    Image.new("RGB", (2, 1), (1, 2, 3)).save(content, "png")
    with offered(FileContent("b", content.getvalue())):
        assert loader("a") == "a"
        assert loader("b").getpixel((1, 0)) == (1, 2, 3)
    with offered(FileContent("b", b"no image")):
        assert loader("b") == "b"
    assert loader("b") == "b"


def test_no_warning_of_images_as_stored_where_the_dataset_decodes_them(
    vision: Any, images: Path
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        batches = list(DataLoader(vision.ImageFolder(images, fixed), 8))
    assert len(batches) == -(-COUNT // 8)
    assert [str(warning.message) for warning in warned] == []
