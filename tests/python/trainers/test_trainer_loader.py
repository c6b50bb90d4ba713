"""`headrace.torch.TrainerLoader` where no trainer runs."""

from __future__ import annotations

import copy
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from loader_data import FLAT, epoch_ids, payload_ids

import headrace as hr
from headrace.errors import FailedPreconditionError, InvalidArgumentError

torch = pytest.importorskip("torch")
from torch.utils.data import BatchSampler, DistributedSampler  # noqa: E402

from headrace.torch import DataLoader, TrainerLoader  # noqa: E402


def made(numbered: Path, **more: Any) -> hr.Loader:
    return hr.Loader(numbered, 16, seed=1, transform=FLAT, **more)


def test_it_gives_the_batches_and_the_place_of_its_loader(numbered: Path) -> None:
    with made(numbered) as alone:
        expected = [epoch_ids(alone) for _ in range(2)]
    loader = TrainerLoader(made(numbered))
    taken = [[payload_ids(batch) for batch in loader]]
    iterator = iter(loader)
    taken.append([payload_ids(next(iterator)) for _ in range(3)])
    assert taken == [expected[0], expected[1][:3]]
    assert loader.epoch == 1
    state = loader.state_dict()
    assert state == loader.loader.state_dict()
    loader.set_epoch(0)
    assert [payload_ids(batch) for batch in loader] == expected[0]
    loader.load_state_dict(state)
    assert [payload_ids(batch) for batch in loader] == expected[1][3:]
    assert loader.stats()["samples"] == loader.loader.stats()["samples"]
    assert str(loader.explain(2, 1)) == str(loader.loader.explain(2, 1))
    assert str(loader.explain()).splitlines()[0] == str(loader.loader.explain()).splitlines()[0]
    loader.close()
    with pytest.raises(FailedPreconditionError, match="the loader is closed"):
        iter(loader)


def test_it_is_a_dataloader_of_the_steps_for_every_caller(numbered: Path) -> None:
    with made(numbered) as alone:
        expected = epoch_ids(alone)
    loader = TrainerLoader(made(numbered))
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert len(loader) == len(expected)
    assert list(loader.sampler) == list(range(len(expected)))
    assert isinstance(loader.sampler, DistributedSampler)
    assert not isinstance(loader.sampler, BatchSampler)
    assert (loader.batch_size, loader.drop_last, loader.device) == (16, False, None)
    samples = len(hr.open(numbered))
    assert (len(loader.dataset), loader.total_dataset_length) == (samples, samples)
    assert loader.total_batch_size == 16

    class Rest:
        """The steps from the third one on."""

        def __iter__(self) -> Any:
            return (step for step in loader.batch_sampler if step[0] >= 2)

        def __len__(self) -> int:
            return len(expected) - 2

    listed = torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=Rest(), collate_fn=loader.collate_fn
    )
    assert [payload_ids(batch) for batch in listed] == expected[2:]
    loader.close()


def test_what_it_cannot_wrap_is_refused(numbered: Path) -> None:
    given: Any = [1, 2]
    with pytest.raises(InvalidArgumentError) as refused:
        TrainerLoader(given)
    assert str(refused.value) == (
        "loader: got a list, must be a headrace.Loader or a headrace.torch.DataLoader"
    )
    with pytest.raises(InvalidArgumentError) as refused:
        TrainerLoader(DataLoader(given))
    assert str(refused.value) == (
        "making a TrainerLoader of a headrace.torch.DataLoader: Accelerate divides its batches: "
        "give the Accelerator, as TrainerLoader(loader, accelerator); Lightning and Hugging Face's "
        "Trainer take the DataLoader itself; `headrace docs dataloader`"
    )
    with made(numbered) as alone, pytest.raises(InvalidArgumentError) as refused:
        TrainerLoader(alone, "cpu")
    assert str(refused.value) == "accelerator: got 'cpu', must be an accelerate.Accelerator"
    loader = TrainerLoader(made(numbered))
    assert loader.batch_sampler.even_batches
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(FailedPreconditionError, match=r"pickling a headrace.torch.TrainerLo"):
            copied(loader)
    loader.close()


def accelerate_of(processes: int) -> Any:
    """Accelerate's module of states, where so many processes run."""

    class AcceleratorState:
        _shared_state = ("initialized",)
        num_processes = processes

    module: Any = types.ModuleType("accelerate.state")
    module.AcceleratorState = AcceleratorState
    return module


def test_several_processes_of_accelerate_need_the_accelerator(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader: Any = TrainerLoader(made(numbered))
    for module in (None, accelerate_of(1)):
        monkeypatch.setitem(sys.modules, "accelerate.state", module)
        assert loader._is_accelerate_prepared
        loader._is_accelerate_prepared = True  # prepare() sets it.
    monkeypatch.setitem(sys.modules, "accelerate.state", accelerate_of(2))
    with pytest.raises(InvalidArgumentError) as refused:
        getattr(loader, "_is_accelerate_prepared", False)
    assert str(refused.value) == (
        "accelerator.prepare(): got a TrainerLoader without the Accelerator, of which 2 processes "
        "run: each of them would write the same file in save_state(): give it, as "
        "TrainerLoader(loader, accelerator); `headrace docs trainers`"
    )
    loader.close()


def test_what_lightning_makes_again_is_refused(numbered: Path) -> None:
    loader = TrainerLoader(made(numbered))
    batches: Any = loader.batch_sampler
    with pytest.raises(InvalidArgumentError) as refused:
        type(batches)(loader.sampler, batch_size=batches.batch_size, drop_last=False)
    assert str(refused.value) == (
        "making another DataLoader of a headrace.torch.TrainerLoader, as Lightning does for "
        "predict() and overfit_batches=, with batch_size=16 and drop_last=False: its loader has "
        "decided the batches: give Lightning the headrace.Loader itself; `headrace docs trainers`"
    )
    loader.close()


def test_steps_of_torchs_loaders_have_no_explanation(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = TrainerLoader(made(numbered))
    monkeypatch.setattr(loader, "loader", DataLoader([1, 2]))
    with pytest.raises(InvalidArgumentError) as refused:
        loader.explain(0, 0)
    assert str(refused.value) == (
        "explaining a step of a TrainerLoader of a headrace.torch.DataLoader: only the steps of a "
        "headrace.Loader can be explained; give TrainerLoader a headrace.Loader"
    )


def test_named_tuples_are_no_inputs_of_a_trainer(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    TrainerLoader(made(numbered)).close()
    monkeypatch.setitem(sys.modules, "transformers.trainer", types.ModuleType("trainer"))
    fields = {"pixel_values": "image", "labels": "label"}
    TrainerLoader(made(numbered, output=hr.Output(fields=fields))).close()
    assert [str(each.message) for each in recwarn if "TrainerLoader" in str(each.message)] == []
    with pytest.warns(RuntimeWarning) as said:
        TrainerLoader(made(numbered)).close()
    assert [str(each.message) for each in said] == [
        "making a TrainerLoader of a headrace.Loader of named tuples: Hugging Face's Trainer "
        "passes batches to the model by name: make them dicts of the names that the model takes, "
        f"as output=hr.Output(fields={fields}), or by a Python function that returns dicts "
        "(`headrace docs trainers`)"
    ]
    assert said[0].filename == __file__
