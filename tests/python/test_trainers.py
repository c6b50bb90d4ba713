"""Loaders in Accelerate, Hugging Face's Trainer and Lightning, the real packages, on two ranks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, flat
from rank_scripts import (
    Ended,
    ProgramServer,
    environment,
    free_port,
    rank_variables,
    real_packages,
)

import headrace as hr

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(600)  # The first waits for the packages, each for its job.

SCRIPTS = Path(__file__).parent / "trainers"
PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"
EXAMPLES = Path(__file__).parents[2] / "examples" / "trainers"
RANKS_EXAMPLES = (
    *("train_torchrun.py", "train_fsdp.py", "train_accelerate.py", "train_trainer.py"),
)
SHARE = COUNT // 2 + 1  # of a rank of two: one sample comes twice, as declared
IMPORTED = ("torch._dynamo", "torch.distributed.fsdp", "torch.nn.parallel", "headrace.torch")
IMPORTED += ("accelerate", "lightning", "transformers.trainer")  # by one process, for all jobs

NOT_PREPARED = (
    "InvalidArgumentError: accelerator.prepare_data_loader(): got a headrace.{}, which is not "
    "torch's DataLoader: give it headrace.torch.TrainerLoader(loader, accelerator) of the "
    "headrace.Loader; `headrace docs trainers`"
)
UNDIVIDED = (
    "InvalidArgumentError: making a TrainerLoader: this headrace.Loader divides the samples by 1, "
    "but Accelerate has 2 data-parallel processes, and leaves it to the loader: samples would be "
    "lost or repeated; {}; or iterate the headrace.Loader itself; `headrace docs trainers`"
)
SKIPPED_TWICE = (
    "FailedPreconditionError: skipping the first {} batches of a headrace.Loader: it goes on after "
    "batch 3 of epoch 0 already, by load_state_dict(): samples would be lost or repeated; do one "
    "of both; `headrace docs trainers`"
)
NOT_SKIPPED = (
    "AttributeError: a headrace.{} has no {!r}, as it is not torch's DataLoader: for Accelerate, "
    "Hugging Face's Trainer and Lightning make headrace.torch.TrainerLoader(loader) of the "
    "headrace.Loader; `headrace docs trainers`"
)


class Jobs:
    """Every job of this file, one after the other in the background; each is waited for where it
    is asked for."""

    def __init__(self, data: Path, folder: Path, packages: Path) -> None:
        self._server = ProgramServer(environment(packages), *IMPORTED)
        self._pool = ThreadPoolExecutor(1)
        self._jobs: dict[str, Future[list[Ended]]] = {}
        self.folder = folder
        pages = folder / "page"
        pages.mkdir()
        (pages / "images").symlink_to(data)
        for script in EXAMPLES.glob("train_*.py"):  # without its model: ours notes what it gets
            shutil.copy(script, pages)

        def ranks(name: str, script: Path, *arguments: object, of: int = 2) -> None:
            (folder / name).mkdir(exist_ok=True)
            self._begin(name, folder / name, rank_variables(of), script, *arguments)

        def alone(name: str, script: Path, *arguments: object) -> None:
            (folder / name).mkdir(exist_ok=True)
            self._begin(name, folder / name, [{}], script, *arguments)

        alone("body", SCRIPTS / "lightning_resumes.py", data, ".", "ddp")
        ranks("trainer", SCRIPTS / "transformers_ranks.py", data, ".", "two")
        ranks("accelerate", SCRIPTS / "accelerate_ranks.py", data, ".")
        ranks("trainer alone", SCRIPTS / "transformers_ranks.py", data, ".", of=1)
        alone("launchers", SCRIPTS / "launchers.py", data, free_port())
        alone("resumes", SCRIPTS / "lightning_resumes.py", data, ".")
        for name in RANKS_EXAMPLES:
            self._begin(name, pages, rank_variables(), pages / name)
        self._begin("train_lightning.py", pages, [{}], pages / "train_lightning.py")

    def _begin(
        self,
        name: str,
        folder: Path,
        ranks: list[dict[str, str]],
        script: Path,
        *arguments: object,
    ) -> None:
        words = ["python", *map(str, (script, *arguments))]
        self._jobs[name] = self._pool.submit(self._server.run, words, folder, ranks)

    def ended(self, name: str) -> list[Ended]:
        """What the processes of a job left, which succeeded."""
        ended = self._jobs[name].result()
        assert [each.code for each in ended] == [0] * len(ended), "".join(e.err for e in ended)
        return ended

    def failed(self, name: str) -> Ended:
        (ended,) = self._jobs[name].result()
        assert ended.code != 0
        return ended

    def told(self, name: str) -> list[dict[str, Any]]:
        """Of each rank what it told of each case."""
        return [json.loads(each.out.splitlines()[-1]) for each in self.ended(name)]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._server.close()


def page_scripts() -> dict[str, str]:
    blocks = re.findall(r"```python\n(# (\w+\.py).*?)```", PAGE.read_text(), re.DOTALL)
    return {name: script for script, name in blocks}


@pytest.fixture(scope="module")
def jobs(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    packages = real_packages("trainers")
    made = Jobs(numbered, tmp_path_factory.mktemp("trainers"), packages)
    yield made
    made.close()


def assert_shares(shares: list[list[int]]) -> None:
    """Together the ranks had every sample, and none more often than padding makes it."""
    assert set(flat(shares)) == set(range(COUNT))
    assert [len(share) for share in shares] == [SHARE] * len(shares)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("prepared copies, itself", NOT_PREPARED.format("DeviceBatches")),
        ("prepared loader, not wrapped", NOT_PREPARED.format("Loader")),
        (
            "prepared, all samples",
            UNDIVIDED.format(
                "make the loader after Accelerator(), and leave rank= and world_size= out of job="
            ),
        ),
        (
            "prepared, sampler of all",
            UNDIVIDED.format("give a sampler that divides them, as torch's DistributedSampler"),
        ),
        ("skipped batches", NOT_SKIPPED.format("DeviceBatches", "dataset")),
        ("skipped, not wrapped", NOT_SKIPPED.format("Loader", "sampler")),
        ("skipped and restored elsewhere", SKIPPED_TWICE.format(2)),
        ("all skipped and restored", SKIPPED_TWICE.format(5)),
        (
            "left out",
            "FailedPreconditionError: reading batches of a headrace.Loader by their steps: step 2 "
            "after step 0: samples would be lost or repeated: something divides or shuffles the "
            "loader's batch sampler; iterate the loader itself; `headrace docs trainers`",
        ),
        (
            "left out, listed",
            "FailedPreconditionError: reading batches of a headrace.Loader by their steps: step 0 "
            "after the end of the steps: samples would be lost or repeated: something divides or "
            "shuffles the loader's batch sampler; iterate the loader itself; `headrace docs "
            "trainers`",
        ),
        (
            "left out, the last",
            "FailedPreconditionError: reading batches of a headrace.Loader by their steps: a batch "
            "is left at the end of the steps: samples would be lost or repeated: something divides "
            "or shuffles the loader's batch sampler; iterate the loader itself; `headrace docs "
            "trainers`",
        ),
    ],
)
def test_accelerate_would_lose_samples_and_is_refused_on_every_rank(
    jobs: Jobs, case: str, message: str
) -> None:
    for told in jobs.told("accelerate"):
        assert told[case] == message


@pytest.mark.parametrize(
    "case",
    [
        "loader",
        "on the device",
        "checkpointed",
        "prepared loader",
        "prepared loader, model",
        "prepared loader, workers",
        "prepared loader, itself",
        "prepared, not wrapped",
        "prepared sampler",
        "prepared, saved",
    ],
)
def test_accelerate_s_ranks_have_every_sample(jobs: Jobs, case: str) -> None:
    assert_shares([told[case] for told in jobs.told("accelerate")])


@pytest.mark.parametrize(
    ("case", "whole"),
    [
        ("skipped loader", "loader"),
        ("skipped prepared", "loader"),
        ("skipped sampler", "prepared sampler"),
        ("skipped and restored", "loader"),
    ],
)
def test_accelerate_skips_the_first_batches_of_a_loader(jobs: Jobs, case: str, whole: str) -> None:
    for told in jobs.told("accelerate"):
        assert told[case] == told[whole][20:]


@pytest.mark.parametrize("how", ["", ", later", ", prepared", ", sampler"])
def test_an_epoch_of_a_loader_that_is_skipped_to_its_end_is_over(jobs: Jobs, how: str) -> None:
    for told in jobs.told("accelerate"):
        assert told["all skipped" + how] == [True] * 5


@pytest.mark.parametrize("case", ["resumed by state", "resumed by skipping", "resumed twice"])
def test_accelerate_s_loader_goes_on_after_every_step_of_two_epochs(jobs: Jobs, case: str) -> None:
    for told in jobs.told("accelerate"):
        assert told[case] == []


def test_accelerate_steps_at_the_end_of_an_epoch_of_a_prepared_loader(jobs: Jobs) -> None:
    for told in jobs.told("accelerate"):
        assert told["prepared, the end"] == [0, 0, 1, 0, 1] * 2


def test_a_loader_that_is_iterated_by_itself_says_what_it_lacks(jobs: Jobs) -> None:
    for told in jobs.told("accelerate"):
        assert told["warned"] == [
            "iterating a headrace.Loader where Accelerate runs: batches stay on the CPU and are "
            "not in save_state(): wrap it in headrace.torch.TrainerLoader(loader, accelerator); "
            "`headrace docs trainers`"
        ]


def test_the_trainer_has_every_sample_of_a_loader_on_two_ranks(jobs: Jobs) -> None:
    shares = [told["loader"] for told in jobs.told("trainer")]
    for begin in (0, SHARE):
        assert_shares([share[begin : begin + SHARE] for share in shares])


@pytest.mark.parametrize(
    "case",
    [
        "loader",
        "loader, resumed",
        "loader, restored and resumed",
        "loader, resumed, nothing skipped",
        "loader, workers",
    ],
)
def test_the_trainer_alone_has_every_sample_once_an_epoch(jobs: Jobs, case: str) -> None:
    (told,) = jobs.told("trainer alone")
    assert sorted(told[case][:COUNT]) == sorted(told[case][COUNT:]) == list(range(COUNT))
    assert told[case] == told["loader"]


def test_lightning_resumes_with_the_next_batch_of_a_loader(jobs: Jobs) -> None:
    (told,) = jobs.told("resumes")
    whole = told.pop("whole")
    assert sorted(flat(whole[:10])) == sorted(flat(whole[10:])) == list(range(COUNT))
    assert set(told) == {"loader 3", "loader 10", "loader 13", "restored 13"}
    for name, rest in told.items():
        assert rest == whole[int(name.split()[1]) :], name


def test_a_loader_in_the_body_of_lightning_s_script_is_told_where_to_be_made(jobs: Jobs) -> None:
    assert (
        "headrace.errors.InvalidArgumentError: environment WORLD_SIZE='2', LOCAL_RANK='1', but no "
        "RANK: cannot determine which of several processes this is; make the loader after "
        "init_process_group() (with Lightning: in train_dataloader()), or give "
        "job=hr.Job(rank=..., world_size=...)\n"
    ) in jobs.failed("body").err


def test_a_loader_is_made_in_the_function_that_is_launched(jobs: Jobs) -> None:
    (ended,) = jobs.ended("launchers")
    told = [json.loads(line) for line in ended.out.splitlines() if line.startswith("[")]
    given = {(case, rank): what for case, rank, what in told}
    assert_shares([given["fabric, wrapped", rank] for rank in range(2)])
    for case in ("notebook", "fabric"):
        assert_shares([given[case, rank] for rank in range(2)])
        for rank in range(2):
            assert given[f"{case}, before", rank].startswith(
                "FailedPreconditionError: iterating: the loader was made for rank 0 of 1, because "
                f"no other ranks were known; torch.distributed now says rank {rank} of 2"
            )
            assert given["fabric, set up", rank].startswith("TypeError: Only PyTorch DataLoader")
    assert "iterating: the loader was made for rank 0 of 1" in given["ddp_fork", 0]
    assert "a headrace.Loader cannot be pickled or copied" in given["ddp_spawn", 0]


@pytest.mark.parametrize("name", [*RANKS_EXAMPLES, "train_lightning.py"])
def test_the_examples_train_on_every_sample_once_an_epoch(jobs: Jobs, name: str) -> None:
    lines = [line for each in jobs.ended(name) for line in each.out.splitlines()]
    shares = [json.loads(line) for line in lines if re.fullmatch(r"\[[\d, ]+\]", line)]
    assert len(shares) == 2, lines
    for begin in (0, SHARE):
        assert_shares([share[begin : begin + SHARE] for share in shares])


def test_the_page_has_the_examples() -> None:
    examples = {each.name: each.read_text() for each in EXAMPLES.glob("train_*.py")}
    assert page_scripts() == examples
    assert len(examples) == PAGE.read_text().count("```python")


def test_the_examples_model_trains(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from model import Net  # type: ignore[import-not-found,attr-defined]

    model = Net()
    with hr.Loader(numbered, 16, transform=hr.image.train(64)) as loader:
        loss = model(*next(iter(loader)))
    loss.backward()
    assert all(bool(each.grad.any()) for each in model.parameters())
