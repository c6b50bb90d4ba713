"""Whole training scripts with one changed line: the same samples and losses, bit for bit."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rank_scripts import environment, real_packages

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(600)  # The first waits for the packages.

RUNNER = Path(__file__).with_name("run_programs.py")
LIKE = {"direct": "torch", "processes": "torch, workers", "threads": "torch, workers"}
"""Of our ways to read the one of torch: with workers, torch's sampler draws its seed when the
iteration begins, otherwise with the first batch. What a script draws between changes its seed."""
OURS = tuple(LIKE)
LINE = re.compile(r"(\w+) (\[[\d, ]+\]) (\S+)")
WINDOWS = 71  # of 16 tokens, in the file of the language models


class Program(NamedTuple):
    """A script, and what it prints with torch's loader."""

    name: str
    data: str
    passes: dict[str, list[int]]
    """Of each kind of line the samples of each pass over the data, of which none comes twice."""
    ranks: int = 1


PLAIN = (
    Program("classification", "images", {"train": [56] * 2, "test": [60] * 4}),
    Program("language", "tokens", {"train": [48, 48, 24], "eval": [12] * 3}),
)
PACKAGED = (
    Program("with_trainer", "tokens", {"train": [50] * 2, "eval": [20] * 2}),
    # Lightning validates 2 batches before it trains, and twice an epoch.
    Program("with_lightning", "images", {"train": [42] * 2, "validation": [12, *[18] * 4]}),
    # Accelerate pads: of 50 samples each rank gets 28, of which the last may be the first again.
    Program("with_accelerate", "tokens", {"train": [24, 4] * 2, "test": [21] * 2}, ranks=2),
)


class Outputs:
    """What scripts printed: they run when the first output is asked for."""

    def __init__(self, folder: Path, data: dict[str, Path], programs: tuple[Program, ...]) -> None:
        self._folder, self._data, self._programs = folder, data, programs
        folder.mkdir()

    def run(self, packages: Path | None) -> None:
        runs: list[list[Any]] = []
        for each in self._programs:
            data = str(self._data[each.data])
            for way in ("torch", "torch, workers", *OURS):
                runs.append([f"{each.name} {way}", each.name, way, each.ranks, data])
            if each.name == "classification":
                for way in OURS:
                    runs.append([f"drawn {way}", each.name, way, 1, data, "--sample-rng"])
        command = [sys.executable, RUNNER, self._folder, *(each.name for each in self._programs)]
        done = subprocess.run(
            [str(each) for each in command],
            env=environment(packages),
            input="".join(f"{json.dumps(each)}\n" for each in runs),
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr

    def lines(self, label: str, rank: int = 0) -> list[tuple[str, str, str]]:
        """Kind, samples and loss of each batch; without what trainers print, such as times."""
        text = (self._folder / f"{label}-{rank}.txt").read_text()
        found = map(LINE.fullmatch, text.splitlines())
        return [(each[1], each[2], each[3]) for each in found if each is not None]


@pytest.fixture(scope="module")
def data(original: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.bin"
    rng = np.random.default_rng(5)
    rng.integers(0, 64, WINDOWS * 16 + 1).astype(np.uint16).tofile(tokens)
    return {"images": original, "tokens": tokens}


@pytest.fixture(scope="module")
def plain(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Of the scripts that need torch only."""
    made = Outputs(tmp_path_factory.mktemp("plain") / "out", data, PLAIN)
    made.run(None)
    return made


@pytest.fixture(scope="module")
def packaged(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Of the scripts that need the trainers' packages."""
    packages = real_packages("trainers")
    made = Outputs(tmp_path_factory.mktemp("packaged") / "out", data, PACKAGED)
    made.run(packages)
    return made


def outputs_of(request: pytest.FixtureRequest, program: Program) -> Outputs:
    made: Outputs = request.getfixturevalue("plain" if program in PLAIN else "packaged")
    return made


def each_program() -> pytest.MarkDecorator:
    foreign = [pytest.param(each, marks=pytest.mark.foreign) for each in PACKAGED]
    names = [each.name for each in (*PLAIN, *PACKAGED)]
    return pytest.mark.parametrize("program", [*PLAIN, *foreign], ids=names)


@each_program()
@pytest.mark.parametrize("way", ["torch", "torch, workers"])
def test_the_script_trains_on_every_sample_with_torch(
    request: pytest.FixtureRequest, program: Program, way: str
) -> None:
    """Otherwise equal outputs would say little."""
    for rank in range(program.ranks):
        lines = outputs_of(request, program).lines(f"{program.name} {way}", rank)
        losses = [float.fromhex(loss) for _, _, loss in lines]
        assert all(map(math.isfinite, losses))
        assert len(set(losses)) == len(losses)
        ids: dict[str, list[int]] = {}
        for kind, batch, _ in lines:
            ids.setdefault(kind, []).extend(json.loads(batch))
        assert {kind: len(each) for kind, each in ids.items()} == {
            kind: sum(passes) for kind, passes in program.passes.items()
        }
        for kind, passes in program.passes.items():
            for count in passes:
                taken, ids[kind] = ids[kind][:count], ids[kind][count:]
                assert len(set(taken)) == count, kind


@each_program()
@pytest.mark.parametrize("way", OURS)
def test_one_changed_line_gives_the_samples_and_losses_of_torch(
    request: pytest.FixtureRequest, program: Program, way: str
) -> None:
    outputs = outputs_of(request, program)
    for rank in range(program.ranks):
        expected = outputs.lines(f"{program.name} {LIKE[way]}", rank)
        assert outputs.lines(f"{program.name} {way}", rank) == expected


def test_transforms_that_draw_from_the_sample_s_generator_give_the_same_losses_in_every_way(
    plain: Outputs,
) -> None:
    expected = plain.lines("drawn direct")
    others = plain.lines("classification direct")
    assert [kind for kind, _, _ in expected] == [kind for kind, _, _ in others]
    assert expected != others
    for way in OURS:
        assert plain.lines(f"drawn {way}") == expected
