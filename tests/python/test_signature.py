"""What the Loader's signature says: to a type checker, and to who brings DataLoader's arguments."""

from __future__ import annotations

import dataclasses
import inspect
import multiprocessing
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from loader_data import write_numbered
from torch.utils.data import DataLoader

import headrace as hr
from headrace import _signature as signature
from headrace import errors
from headrace.papers.redox import RedoxFetcher
from headrace.torch import DeviceBatches, Normalize

HERE = Path(__file__).parent
OURS = list(inspect.signature(hr.Loader).parameters)
MEANT = {
    "num_workers": (4, r"num_workers=4: .*threads=.* write workers=4 beside transform="),
    "pin_memory": (True, r"pin_memory=True: .*headrace.torch.DeviceBatches\(loader, device\)"),
    "pin_memory_device": ("cuda:1", r"pin_memory_device='cuda:1': .*DeviceBatches"),
    "prefetch_factor": (
        2,
        r"prefetch_factor=2: .*in all.* write engine=hr.EngineOptions\(prefetch=2\)",
    ),
    "persistent_workers": (True, r"persistent_workers=True: .*leave it out"),
    "timeout": (30, r"timeout=30: .*Ctrl-C.*leave it out"),
    "generator": (torch.Generator(), r"generator=<.*>: .*seed=generator.initial_seed\(\)"),
    "multiprocessing_context": (
        multiprocessing.get_context("forkserver"),
        r"multiprocessing_context=.*: .*workers=hr.Workers\(start='forkserver'\)",
    ),
    "in_order": (True, r"in_order=True: .*always come in order.*leave it out"),
}
"""For each argument that only DataLoader has: a value, and the message."""


def test_every_argument_of_dataloader_is_ours_or_is_explained() -> None:
    torchs = list(inspect.signature(DataLoader).parameters)
    grouped = {"collate_fn", "worker_init_fn"}  # By these names, or as hr.Workers has them.
    assert set(torchs) - set(OURS) - grouped == set(MEANT) == set(signature.OF_TORCH)


@pytest.mark.parametrize("name", MEANT)
def test_an_argument_of_dataloader_says_what_to_write_here(numbered: Path, name: str) -> None:
    given, message = MEANT[name]
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.Loader(numbered, 8, **cast(Any, {name: given}))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("worker", "'workers'"),
        ("batchsize", "'batch_size'"),
        ("prefetchs", "engine=hr.EngineOptions(prefetch=...)"),
        ("placment", "tiers=hr.Cache(placement=...)"),
        ("localrank", "job=hr.Job(node=hr.Node(local_rank=...))"),
        ("isolaton", "job=hr.Job(node=False), or job=hr.Job(node=hr.Node())"),
        ("word_size", "job=hr.Job(world_size=...)"),
        ("worker_initfn", "workers=hr.Workers(init_fn=...)"),
    ],
)
def test_a_name_that_is_nearly_one_of_ours_is_told(numbered: Path, name: str, meant: str) -> None:
    message = f"{name}=3: unexpected keyword '{name}'; did you mean {meant}?"
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, **cast(Any, {name: 3}))
    assert str(raised.value) == message


def test_any_other_name_is_told_all_there_are(numbered: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"zzz='x+\.\.\. ") as raised:
        hr.Loader(numbered, **cast(Any, {"zzz": "x" * 10**6}))
    assert str(raised.value).endswith(f"there are {', '.join(OURS)}")
    assert len(str(raised.value)) < 1000


def test_arguments_that_have_no_place_are_asked_for_by_name(numbered: Path) -> None:
    make = cast(Any, hr.Loader)
    with pytest.raises(errors.InvalidArgumentError, match=r"only dataset, batch_size.*by name"):
        make(numbered, 8, True)
    with pytest.raises(TypeError, match="dataset"):
        make()


PUBLIC: list[Callable[..., Any]] = [
    hr.open,
    hr.orders.Exact,
    hr.orders.Batch,
    hr.orders.Epoch,
    hr.orders.Redox,
    hr.image.train,
    hr.image.evaluate,
    hr.image.resize,
    hr.image.ImageTransform,
    hr.Workers,
    hr.Cache,
    hr.Output,
    hr.Job,
    hr.Node,
    hr.EngineOptions,
    hr.tiers.Ram,
    hr.tiers.Ssd,
    hr.tiers.Budget,
    hr.tiers.Budget("1MiB").part,
    hr.profile.load,
    hr.profile.predict_epoch,
    hr.profile.EpochWork,
    hr.profile.TierWork,
    RedoxFetcher,
    DeviceBatches,
    Normalize,
]


@pytest.mark.parametrize("function", PUBLIC)
def test_every_public_callable_helps_with_a_wrong_name(function: Callable[..., Any]) -> None:
    names = list(inspect.signature(function).parameters)
    with pytest.raises(errors.InvalidArgumentError, match="zzz=3: unexpected keyword 'zzz'; th"):
        function(zzz=3)
    for name in names:
        message = f"{name}_=3: unexpected keyword '{name}_'; did you mean '{name}'?"
        with pytest.raises(errors.InvalidArgumentError, match=re.escape(message)):
            function(**{f"{name}_": 3})
    with pytest.raises(errors.InvalidArgumentError, match="20 arguments without a name"):
        function(*range(20))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda make: make.Exact(3),
            "1 argument without a name: this takes no arguments; give none",
        ),
        (
            lambda make: make.Exact(a=3),
            "a=3: unexpected keyword 'a'; this takes no arguments; give none",
        ),
        (lambda make: make.Batch(1), "1 argument without a name: write all by name, as homes=..."),
    ],
)
def test_what_takes_no_arguments_or_none_without_a_name_says_so(
    make: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        make(hr.orders)
    assert str(raised.value) == says


def test_an_argument_that_is_missing_is_one_of_the_function_as_it_is_called() -> None:
    with pytest.raises(TypeError, match=r"^open\(\) missing 1 .*'path'"):
        cast(Any, hr.open)()
    assert pickle.loads(pickle.dumps(hr.open)) is hr.open


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.image.train(8, flip=cast(Any, "x")).to_core(), "image flip 'x': must be a num"),
        (lambda: hr.image.train(8, exact=cast(Any, 3)).to_core(), "image exact: got 3, must be Tr"),
        (lambda: Normalize(cast(Any, 3)), "mean: got 3, must be an iterable of numbers"),
        (lambda: Normalize(std=cast(Any, ["x"])), r"std: got \['x'\], must be numbers"),
        (
            lambda: hr.profile.predict_epoch(cast(Any, 3), hr.profile.EpochWork(samples=1)),
            "profile: got 3, must be a headrace.profile.MachineProfile",
        ),
    ],
)
def test_a_wrong_type_is_told_what_is_expected(make: Callable[[], object], says: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=says):
        make()


def test_orders_and_tiers_can_still_be_pickled_compared_and_replaced() -> None:
    order = hr.orders.Epoch(pools=3)
    assert pickle.loads(pickle.dumps(order)) == order
    assert dataclasses.replace(order, pools=4) == hr.orders.Epoch(pools=4)
    assert hr.tiers.Ssd("/x", 4096) == hr.tiers.Ssd(path="/x", capacity=4096, threads=4)


def test_a_loader_of_the_users_own_takes_what_it_adds(numbered: Path) -> None:
    class Logged(hr.Loader):
        def __init__(self, dataset: Path, *, log: list[str], **arguments: Any) -> None:
            log.append("made")
            super().__init__(dataset, **arguments)

    log: list[str] = []
    with Logged(numbered, log=log, batch_size=40, shuffle=False) as loader:
        assert [len(batch.label) for batch in loader] == [40, 40, 17]
    assert log == ["made"]
    with pytest.raises(errors.InvalidArgumentError, match="did you mean 'shuffle'"):
        Logged(numbered, log=log, shufle=True)


@pytest.mark.house  # mypy is a tool of the checks.
def test_mypy_knows_words_names_and_batches(tmp_path: Path) -> None:
    import mypy.api

    config = tmp_path / "mypy.ini"  # Without torch, which takes 10 s to read.
    config.write_text("[mypy]\nstrict=True\n[mypy-torch.*,matplotlib.*]\nfollow_imports=skip\n")
    options = [f"--config-file={config}", f"--cache-dir={tmp_path}", "--no-error-summary"]
    said, problems, code = mypy.api.run([*options, str(HERE / "typed_loader.py")])
    assert (said, problems, code) == ("", "", 0)


@pytest.mark.parametrize("name", ["index", "format", "split", "skip", "progress"])
def test_an_argument_of_open_is_sent_there(numbered: Path, name: str) -> None:
    given: dict[str, Any] = {name: "train"}
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, **given)
    assert str(raised.value) == (
        f"{name}='train': an argument of headrace.open; write hr.Loader(hr.open(path, "
        f"{name}='train'), ...)"
    )
    assert name in inspect.signature(hr.open).parameters


def test_a_split_is_opened_as_the_message_says(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("test", 2)):
        write_numbered(tmp_path / "data" / part, [count])
    path = tmp_path / "data"
    with hr.Loader(hr.open(path, split="train"), 2) as loader:
        assert sum(len(batch.label) for batch in loader) == 3
