"""docs/guides/coming-from.md: both sides of each pair deliver the same samples."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from guide_pages import Code, blocks
from loader_data import COUNT, LABELS
from rank_scripts import environment, real_packages

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

PAGE = "coming-from.md"
RUN = ("torch", "WebDataset", "MosaicML Streaming", "LitData", "Hugging Face datasets")
NOT_RUN = ("torchvision", "FFCV", "DALI")  # not in tools/envs, as they are large or need a compiler
OURS = "Headrace"
ALL = {(number, int(label)) for number, label in enumerate(LABELS)}
MEAN, STD = 0.485, 0.229  # of the first channel, as `hr.image.train` has them by default


def code() -> list[Code]:
    found = [block for block in blocks(PAGE) if isinstance(block, Code)]
    assert len(found) == len(blocks(PAGE))
    return found


@pytest.fixture(scope="module")
def packages() -> Path:
    """Of all of RUN but torch; `real_packages` has made the other folder that they need."""
    found = real_packages("loaders")
    real_packages("trainers")
    return found


@pytest.fixture(scope="module")
def theirs(
    packages: Path, numbered: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, list[list[int]]]]:
    """A folder with the data of all packages, and what each package's code trains on."""
    folder = tmp_path_factory.mktemp("theirs")
    shutil.copytree(numbered, folder / "images")
    given = [(block.title, block.text) for block in code() if block.title in RUN]
    both = environment(packages)
    both["PYTHONPATH"] += f":{real_packages('trainers')}"
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("their_loaders.py"), folder],
        input=json.dumps(given),
        env=both,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_every_block_is_of_a_package_that_the_page_names() -> None:
    """And stands left of one of ours."""
    titles = [block.title for block in code()]
    assert titles[1::2] == [OURS] * (len(titles) // 2)
    assert sorted(titles[::2]) == sorted((*RUN, *NOT_RUN))


@pytest.mark.timeout(900)
def test_their_code_trains_on_every_sample(
    theirs: tuple[Path, dict[str, list[list[int]]]],
) -> None:
    _, results = theirs
    assert sorted(results) == sorted(RUN)
    for title, seen in results.items():
        assert len(seen) == COUNT, title
        assert {(number, label) for number, label in seen} == ALL, title
        assert [number for number, _ in seen] != list(range(COUNT)), title  # It shuffled.


class Pictures(torch.utils.data.Dataset):  # type: ignore[misc]
    """What a user's own dataset gives: of one size, and decoded."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return torch.full((3, 4, 4), number, dtype=torch.uint8), int(LABELS[number])


def greys(images: Any) -> list[int]:
    """Of images of one colour, normalised or not."""
    first = images[:, 0, 0, 0]
    return [
        round(x)
        for x in (first if first.dtype == torch.uint8 else (first * STD + MEAN) * 255).tolist()
    ]


@pytest.mark.timeout(900)
def test_our_code_trains_on_the_same_samples(
    theirs: tuple[Path, dict[str, list[list[int]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(theirs[0])
    left = ""
    for block in code():
        if block.title != OURS:
            left = block.title
            continue
        seen: list[tuple[int, int]] = []

        def train(images: Any, labels: Any, seen: list[tuple[int, int]] = seen) -> None:
            seen += list(zip(greys(images), labels.tolist(), strict=True))

        names = {"train": train, "dataset": Pictures(), "device": torch.device("cpu")}
        exec(compile(block.text, f"{PAGE}:{block.line}", "exec"), names)
        if left == "FFCV":  # drop_last=True, which is FFCV's default
            assert len(seen) == len(set(seen)) == COUNT // 32 * 32
            assert set(seen) < ALL
        else:
            assert sorted(seen) == sorted(ALL), left
        assert seen != sorted(seen), left
