"""The signature is torch's, of the torch that is installed and of others; torch is not imported by
headrace itself."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import textwrap

import pytest
import torch.utils.data

from headrace.torch import DataLoader

OWN = ("worker_method", "pool_size", "fetch", "epoch_size", "snapshot_every_n_steps")

POSITIONAL = {
    "dataset": inspect.Parameter.empty,
    "batch_size": 1,
    "shuffle": None,
    "sampler": None,
    "batch_sampler": None,
    "num_workers": 0,
    "collate_fn": None,
    "pin_memory": False,
    "drop_last": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "generator": None,
}
BY_NAME = {"prefetch_factor": None, "persistent_workers": False, "pin_memory_device": ""}
RECORDED = {
    "2.4": (POSITIONAL, BY_NAME),
    "2.6": (POSITIONAL, BY_NAME | {"in_order": True}),
}
"""Of torch/utils/data/dataloader.py, from the version on."""


def split(function: object) -> tuple[dict[str, object], dict[str, object]]:
    """The arguments that may be positional, and the others, with their defaults, in order."""
    parameters = list(inspect.signature(function).parameters.values())[1:]  # type: ignore[arg-type]
    assert {each.kind for each in parameters} <= {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return (
        {each.name: each.default for each in parameters if each.kind is positional},
        {each.name: each.default for each in parameters if each.kind is not positional},
    )


def ours() -> tuple[dict[str, object], dict[str, object]]:
    positional, by_name = split(DataLoader.__init__)
    assert tuple(by_name)[-len(OWN) :] == OWN
    return positional, {name: by_name[name] for name in by_name if name not in OWN}


def test_the_signature_is_that_of_the_torch_that_is_installed() -> None:
    positional, by_name = split(torch.utils.data.DataLoader.__init__)
    mine, mine_by_name = ours()
    assert list(mine.items()) == list(positional.items())
    assert {name: mine_by_name[name] for name in by_name} == by_name
    # Arguments of newer versions are refused by older ones, by name.
    assert set(mine_by_name) - set(by_name) <= {"in_order"}


@pytest.mark.parametrize("version", RECORDED)
def test_the_signature_has_all_of_other_versions(version: str) -> None:
    positional, by_name = RECORDED[version]
    mine, mine_by_name = ours()
    assert list(mine.items()) == list(positional.items())
    assert {name: mine_by_name[name] for name in by_name} == by_name


def test_an_older_torch_gets_no_argument_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.torch._dataloader import loader

    known = {name: each for name, each in loader._TORCH_PARAMETERS.items() if name != "in_order"}
    monkeypatch.setattr(loader, "_TORCH_PARAMETERS", known)
    assert list(DataLoader([1, 2])) == [1, 2]  # type: ignore[comparison-overlap]
    with pytest.raises(ValueError, match=r"in_order=False: torch .* has no such argument"):
        DataLoader([1, 2], in_order=False)


def test_a_loader_can_be_made_from_the_attributes_of_another_as_lightning_does() -> None:
    how = {"num_workers": 2, "worker_method": "thread", "pool_size": 5, "fetch": "arrival"}
    first = DataLoader(range(9), 2, snapshot_every_n_steps=3, **how)  # type: ignore[arg-type]
    attributes = {name: value for name, value in vars(first).items() if name[0] != "_"}
    names = set(inspect.signature(DataLoader.__init__).parameters) & set(attributes)
    given = {name: attributes[name] for name in names - {"batch_sampler"}} | {"sampler": [3, 1]}
    second = DataLoader(**given)
    assert set(OWN) <= names
    assert all(getattr(second, name) == getattr(first, name) for name in OWN)
    assert sorted(next(iter(second)).tolist()) == [1, 3]


def test_headrace_imports_no_package_but_numpy_and_no_format_that_is_not_used() -> None:
    program = textwrap.dedent("""
        import sys

        import numpy

        before = set(sys.modules)
        import headrace as hr

        new = set(sys.modules) - before
        own = {name for name in new if name.partition(".")[0] == "headrace"}
        others = {name.partition(".")[0] for name in new - own}
        print(sorted(others - sys.stdlib_module_names - {"__mp_main__", "numpy"}))
        print([name for name in sys.argv[1:] if name in new])
        print(sorted({"tempfile", "hashlib", "difflib", "tomllib", "tarfile"} & new))
        print(hr.formats.Tokens.__name__, hr.profile.load.__name__, "Parquet" in dir(hr.formats))
    """)
    late = ("formats.table", "formats.tokens", "formats._base.builder", "profile._machine", "torch")
    modules = [f"headrace.{name}" for name in late]
    assert all(map(importlib.util.find_spec, modules))
    found = subprocess.run(
        [sys.executable, "-c", program, *modules], check=True, capture_output=True, text=True
    ).stdout
    assert found.splitlines() == ["[]", "[]", "[]", "Tokens load True"]
