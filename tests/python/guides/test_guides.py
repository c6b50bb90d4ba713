"""The guides do what they show: every block of docs/guides/ runs, and prints what stands below it.

HEADRACE_SOAK=1 runs each command as it stands, torchrun too; otherwise a server of programs
(program_server.py) saves the time of importing torch.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guide_pages import GUIDES, Code, Command, blocks, difference
from observe_data import CAUSES, core, lane
from rank_scripts import ProgramServer, environment, free_port

from headrace._observe.advice import DataFacts
from headrace._observe.computed import make_ranks, make_verdict

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

HERE = Path(__file__).parent
README = HERE.parents[2] / "README.md"
SOAK = os.environ.get("HEADRACE_SOAK") == "1"
# What the first optimizer imports, too.
IMPORTED = ("torch._dynamo", "torch.distributed", "torch.nn.parallel", "PIL.Image")
IMPORTED += ("headrace.cli", "headrace.torch")
KINDS = (*itertools.product((0, 1), ("files", "blocks", "ranges"), (False, True)),)
"""Of stored samples: images that are decoded, their layout, whether a sampler says the order."""
Run = Callable[[list[str], Path], str]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of all programs: one size of terminal, and a cache folder of their own."""
    more = {"COLUMNS": "100", "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"}
    return environment(XDG_CACHE_HOME=tmp_path_factory.mktemp("cache"), **more)


@pytest.fixture(scope="module")
def server(variables: dict[str, str]) -> Iterator[ProgramServer]:
    with ProgramServer(variables, *IMPORTED) as made:
        yield made


@pytest.fixture(scope="module")
def run(server: ProgramServer, variables: dict[str, str]) -> Run:
    """Runs a command in a folder; what it printed. It must succeed."""

    def forked(words: list[str], folder: Path) -> str:
        ranks, words = _ranks(words)
        ended = server.run(words, folder, ranks, joined=True)
        printed = "".join(each.out for each in ended)
        if any(each.code for each in ended):
            pytest.fail(f"{' '.join(words)}:\n{printed}")
        return printed

    def started(words: list[str], folder: Path) -> str:
        module = {"python": [], "headrace": ["-m", "headrace"]}
        module["torchrun"] = ["-m", "torch.distributed.run"]
        here = {"host0:29500": f"127.0.0.1:{free_port()}"}
        arguments = [here.get(word, word) for word in words[1:]]
        nodes = 2 if "--nnodes" in words else 1
        quiet = variables | {"TORCH_CPP_LOG_LEVEL": "ERROR"}
        processes = [
            subprocess.Popen(
                [sys.executable, *module[words[0]], *arguments],
                cwd=folder,
                env=quiet,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(nodes)
        ]
        printed = "".join(process.communicate()[0] for process in processes)
        if any(process.returncode for process in processes):
            pytest.fail(f"{' '.join(words)}:\n{printed}")
        return printed

    return started if SOAK else forked


def _ranks(words: list[str]) -> tuple[list[dict[str, str]], list[str]]:
    """The variables that torchrun would set for each process, and the command of each."""
    if words[0] != "torchrun":
        return [{}], words
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    nodes, local = int(options.pop("--nnodes", 1)), int(options.pop("--nproc-per-node"))
    assert set(options) <= {"--rdzv-backend", "--rdzv-endpoint"}, options
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"WORLD_SIZE": str(nodes * local), "LOCAL_WORLD_SIZE": str(local)}
    ranks = [
        shared
        | {"RANK": str(rank), "LOCAL_RANK": str(rank % local)}
        | {"GROUP_RANK": str(rank // local), "GROUP_WORLD_SIZE": str(nodes)}
        for rank in range(nodes * local)
    ]
    return ranks, ["python", words[-1]]


def run_page(page: str, folder: Path, run: Run) -> list[str]:
    """Runs all commands of a page, in its order; what each printed."""
    printed = []
    for block in blocks(page):
        if isinstance(block, Code):
            assert block.file, f"{page}:{block.line}: the first line names no file"
            (folder / block.file).write_text(block.text)
            continue
        printed.append(_do(block, folder, run))
        wrong = difference(block.output, printed[-1], folder)
        assert wrong is None, f"{page}:{block.line}: {' '.join(block.words)}\n{wrong}"
    return printed


def _do(command: Command, folder: Path, run: Run) -> str:
    if command.words[0] == "rm":
        (folder / command.words[1]).unlink()
        return ""
    return run(command.words, folder)


def unused_files(page: str) -> set[str]:
    """Files that no command of a page runs and no other file imports."""
    code = [block for block in blocks(page) if isinstance(block, Code) and block.file]
    commands = [block.words for block in blocks(page) if isinstance(block, Command)]
    run = {word for words in commands for word in words}
    texts = "".join(block.text for block in code)
    names = {str(block.file) for block in code} - run
    return {name for name in names if f"import {name.removesuffix('.py')}" not in texts}


@pytest.mark.parametrize("page", ["tutorial.md", "recipes.md", "tuning.md"])
def test_every_file_of_a_guide_is_run(page: str) -> None:
    assert unused_files(page) == set()


@pytest.mark.timeout(600)
def test_the_tutorial_s_commands_print_what_it_shows(run: Run, tmp_path: Path) -> None:
    printed = run_page("tutorial.md", tmp_path, run)
    whole, _, resumed, _ = [text.splitlines() for text in printed if "loss" in text]
    assert whole[1:3] == resumed[1:3]  # The stopped run trained on the same, to the last digit.


@pytest.mark.timeout(600)
def test_the_recipes_commands_print_what_they_show(run: Run, tmp_path: Path) -> None:
    *_, nodes = run_page("recipes.md", tmp_path, run)
    counts = re.findall(
        r"^(\d+) samples from the other node, (\d+) from here$", nodes, re.MULTILINE
    )
    assert len(counts) == 2
    assert all(int(number) > 50 for count in counts for number in count), nodes


@pytest.mark.timeout(600)
def test_the_commands_of_tuning_print_what_they_show(run: Run, tmp_path: Path) -> None:
    printed = "".join(run_page("tuning.md", tmp_path, run))
    assert re.search(r"^rank 0 waited \d+ % of the time: \d+ % decode", printed, re.MULTILINE)


def test_tuning_has_every_advice_of_a_verdict() -> None:
    """A number may be another one."""
    page = _without_numbers((GUIDES / "tuning.md").read_text())
    stored = [DataFacts(2, 1, images, layout, sampler) for images, layout, sampler in KINDS]
    kinds = [*stored, DataFacts(2, 0, 0, "ranges", False)]
    states: list[dict[str, Any]] = [{}, {"threads": 8}, {"tiers": [{}]}, {"resident_budget": 1}]
    found = set()
    for data, state in itertools.product(kinds, states):
        for cause in CAUSES:
            lanes = [lane({cause: 20}, samples=64, sample_bytes=64 * 8192), lane(samples=0)]
            told = core(lanes, **state)
            found.add(make_verdict(told, make_ranks(told), data))
    for workers in (0, 1, 8):
        data = DataFacts(2, 1, 0, "ranges", False, workers)
        told = core([lane()], loop_share=0.9)
        found.add(make_verdict(told, make_ranks(told), data))
    found.add(make_verdict(core([lane(steps=0)]), make_ranks(core([lane(steps=0)])), stored[0]))
    found.add(make_verdict(core([lane()], awaited=[3]), [], stored[0]))
    advice = {text.partition("; ")[2] or text for text in found}
    assert len(advice) > 15
    missing = {text for text in advice if _without_numbers(text) not in page}
    assert not missing


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*\d|\d", "N", text.replace("`", "")).replace("N KiB", "N")


def test_an_output_that_differs_is_found(tmp_path: Path) -> None:
    shown = ["packed 3 samples: /data/out", "...", "epoch 1: loss 0.40", ""]
    shown[-1] = "rank 0 waited 9 % of the time: 9 % decode; raise threads= (1 of 2 cores decode)"
    right = [f"packed 3 samples: {tmp_path}/out", "a", "epoch 1: loss 0.42", ""]
    right[-1] = "rank 1 is not waiting: 0.0 % of the time, over the last 5 steps"
    assert difference(shown, "\n".join(right), tmp_path) is None
    for place, wrong in enumerate(("packed 4 samples: /data/out", None, "epoch 1: loss 0.8", "no")):
        if wrong is not None:
            lines = [*right[:place], wrong, *right[place + 1 :]]
            assert difference(shown, "\n".join(lines), tmp_path)
    assert difference(shown, "\n".join(right[:-1]), tmp_path)


@pytest.mark.parametrize("page", [*GUIDES.glob("*.md"), README], ids=lambda page: page.name)
def test_the_links_of_guides_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text())
    assert len(links) > 5
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), (path, anchor)
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            names = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor in names, (path, anchor)
