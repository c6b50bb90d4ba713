"""Folder datasets that are not as torchvision makes them: damaged, changed, of classes of the
user's. Whatever the engine reads ahead, batches and errors are those of torch's DataLoader."""

from __future__ import annotations

import copy
import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from folder_data import COUNT, fixed, read_ahead, write_images
from map_data import WAYS, plain
from PIL import Image
from torch.utils.data import ConcatDataset, Subset, random_split

from headrace.torch import DataLoader


def both(data: Any, **options: Any) -> list[list[Any]]:
    """The batches, and errors in their places, of torch's DataLoader and of this one."""
    found = []
    for kind in (torch.utils.data.DataLoader, DataLoader):
        loader = kind(data, **options)
        iterator, batches = iter(loader), []
        while True:
            try:
                batches.append(plain(next(iterator)))
            except StopIteration:
                break
            except Exception as error:
                batches.append((type(error), str(error)))
        found.append(batches)
        if kind is DataLoader:
            loader.close()
    return found


def test_roots_as_they_are_written(
    vision: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images.parent)
    (tmp_path / "link").symlink_to(images)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a").symlink_to(images / "class 0")
    within = os.path.relpath(images)
    roots = [within, f"./{within}/", f"{images}//", f"{images}/../{within}"]
    for root in [*roots, tmp_path / "link", tmp_path / "parts"]:
        data = vision.ImageFolder(root, fixed)
        loader = DataLoader(data, 8)
        theirs = torch.utils.data.DataLoader(data, 8)
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in theirs]
        assert read_ahead(loader) == len(data), root
        loader.close()


def test_a_root_that_another_folder_seems_to_be(vision: Any, images: Path, tmp_path: Path) -> None:
    """`link/../images` is beside the folder that the link leads to."""
    write_images(tmp_path / "images", COUNT, 3)
    (tmp_path / "far" / "within").mkdir(parents=True)
    (tmp_path / "far" / "images").symlink_to(images)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "within")
    ours, theirs = both(vision.ImageFolder(f"{tmp_path}/link/../images", fixed), batch_size=8)
    assert ours == theirs


@pytest.mark.filterwarnings("error")
def test_a_damaged_file_is_the_datasets_own_error(vision: Any, tmp_path: Path) -> None:
    root = write_images(tmp_path / "images", 9, 1)
    data = vision.ImageFolder(root, fixed)
    Path(data.samples[2][0]).write_bytes(b"no image" * 9)
    Path(data.samples[5][0]).write_bytes(b"")
    ours, theirs = both(data, batch_size=2)
    assert ours == theirs
    assert "002" in str(theirs) or Path(data.samples[2][0]).name in str(theirs)


def test_keys_that_are_wrong_are_the_datasets_own_error(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)
    for given in (data, ConcatDataset([data]), Subset(data, range(30))):
        ours, theirs = both(given, batch_size=2, sampler=[0, 1, 2, 99, 3, 1.5, 4, "5", 6])
        assert ours == theirs


def test_attributes_are_those_of_the_users_dataset(vision: Any, images: Path) -> None:
    """What samples set in the dataset stays, and what the loop sets counts at once."""

    class Counts(vision.ImageFolder):  # type: ignore[misc]
        taken = 0

        def __init_subclass__(cls, **needed: Any) -> None:
            raise AssertionError("made a class of it")

        def __getstate__(self) -> Any:
            raise TypeError("it cannot be copied")

        def __getitem__(self, number: int) -> Any:
            self.taken += 1
            return super(self.__class__, self).__getitem__(number)

    found = []
    for kind in (torch.utils.data.DataLoader, DataLoader):
        data = Counts(images, fixed)
        loader = kind(data, 8)
        batches = []
        for number, batch in enumerate(loader):
            batches.append(plain(batch))
            if number == 1:
                data.transform = lambda image: fixed(image) // 2
            elif number == 3:
                data.loader = lambda path: Image.new("RGB", (5, 5), (9, 9, 9))
        found.append((batches, data.taken))
    assert found[0] == found[1]
    assert read_ahead(loader) == COUNT


@pytest.mark.parametrize("way", ["direct", "persistent"])
def test_a_dataset_that_is_not_what_it_was_is_read_as_it_is(
    way: str, vision: Any, images: Path, more: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lists(vision.ImageFolder):  # type: ignore[misc]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.samples = [list(entry) for entry in self.samples]

    def entry(part: Any) -> None:
        part.dataset.samples[3][0] = part.dataset.samples[7][0]

    def loader(part: Any) -> None:
        part.dataset.loader = lambda path: Image.new("RGB", (5, 5), (9, 9, 9))

    def leaf(part: Any) -> None:
        part.dataset = [(torch.zeros(3, 4, 4), number) for number in range(COUNT)]

    def program(part: Any) -> None:
        monkeypatch.setattr(vision, "pil_loader", lambda path: Image.new("RGB", (5, 5)))

    for change in (entry, loader, leaf, program):
        part = Subset(Lists(images, fixed), range(30))
        ours = DataLoader(part, 8, **WAYS[way])
        before = [plain(batch) for batch in ours]
        change(part)
        if way == "persistent":  # As with torch, workers keep what they were started with.
            assert [plain(batch) for batch in ours] == before, change
        else:
            theirs = torch.utils.data.DataLoader(part, 8)
            assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs], change
        ours.close()


def test_classes_that_keep_their_files_otherwise_are_read_by_themselves(
    vision: Any, images: Path
) -> None:
    class Nothing(vision.ImageFolder):  # type: ignore[misc]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.files, self.samples = self.samples, None

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, number: int) -> Any:
            return self.transform(self.loader(self.files[number][0]))

    class Whole(vision.ImageFolder):  # type: ignore[misc]
        def __getitems__(self, numbers: list[int]) -> Any:
            return [self[number] for number in numbers]

    class Listed(vision.ImageFolder):  # type: ignore[misc]
        @staticmethod
        def make_dataset(root: str, *given: Any, **more: Any) -> Any:
            return vision.make_dataset(root, *given, **more)[::2]

    class Empty(vision.ImageFolder):  # type: ignore[misc]
        def __init__(self, *given: Any) -> None:
            pass

        def __len__(self) -> int:
            return 9

        def __getitem__(self, number: int) -> int:
            return number

    for kind in (Nothing, Whole, Listed, Empty):
        loader = DataLoader(kind(images, fixed), 8)
        theirs = torch.utils.data.DataLoader(kind(images, fixed), 8)
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in theirs], kind
        assert read_ahead(loader) == 0


def test_an_epoch_that_was_taken_to_its_last_batch_leaves_the_next_its_engine(
    vision: Any, images: Path
) -> None:
    loader = DataLoader(vision.ImageFolder(images, fixed), 8)
    iterator: Any = None
    for epoch in range(1, 4):
        iterator = iter(loader)
        for _ in range(len(loader)):
            next(iterator)
        assert read_ahead(loader) == epoch * COUNT
    loader.close()


def test_keys_are_drawn_when_torch_draws_them(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)
    found = []
    for kind in (torch.utils.data.DataLoader, DataLoader):
        torch.manual_seed(1)
        iterator = iter(kind(data, 8, shuffle=True))
        torch.manual_seed(2)
        found.append(plain(next(iterator)))
    assert found[0] == found[1]


def test_datasets_of_one_folder_share_its_loader(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)
    own = data.loader
    one, other = (DataLoader(part, 4) for part in random_split(data, [20, COUNT - 20]))
    taken = iter(one)
    next(taken)
    shared = data.loader
    list(other)
    assert data.loader is shared
    other.close()
    assert data.loader is shared  # The first one still reads ahead.
    other.close()
    assert data.loader is shared
    assert sum(1 for _ in taken) == 4
    one.close()
    assert data.loader is own


def test_a_loader_that_is_dropped_leaves_the_dataset_as_it_was(vision: Any, images: Path) -> None:
    data = vision.ImageFolder(images, fixed)
    own = data.loader
    loader = DataLoader(data, 8)
    assert len(list(loader)) == 6
    assert data.loader is not own
    copied = copy.deepcopy(data)
    again = DataLoader(copied, 8)
    next(iter(again))
    again.close()
    assert copied.loader is own  # A copy has no part in what its original does.
    del loader
    gc.collect()
    assert data.loader is own
