"""Groups of options."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import pydoc
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from loader_data import FLAT, epoch_ids
from order_model import exact_epoch

import headrace as hr
from headrace import errors
from headrace._loading.options import LoaderArguments
from headrace._options import groups
from headrace._process import former
from headrace.tiers import Ram

HELP_LINES_MAX = 112
GROUPS = [hr.Cache, hr.Workers, hr.Output, hr.Job, hr.Node, hr.EngineOptions]
ARGUMENTS_MAX = 18  # of a Loader


def doubled(sample: hr.Sample) -> Any:
    return sample.label * 2


def summed(samples: list[Any]) -> int:
    return int(sum(int(each) for each in samples))


def begin(number: int) -> None:
    """In each worker."""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"prefetch": 2},
            "prefetch=2: not an argument of this name; write engine=hr.EngineOptions(prefetch=...)",
        ),
        ({"collate_fn": summed}, "write workers=hr.Workers(collate_fn=...)"),
        ({"rank": 1, "world_size": 2}, "write job=hr.Job(rank=...)"),
        ({"placement": "reuse"}, "write tiers=hr.Cache(placement=...)"),
        ({"local_rank": 0}, "write job=hr.Job(node=hr.Node(local_rank=...))"),
        ({"open_network": True}, "write job=hr.Job(node=hr.Node(open_network=...))"),
        (
            {"node": "train"},
            "node='train': not an argument of this name; write job=hr.Job(node=...)",
        ),
        (
            {"isolation": "thread"},
            "isolation='thread': not an argument of this name; write job=hr.Job(node=False), or "
            "job=hr.Job(node=hr.Node())",
        ),
        ({"worker_start": "fork"}, "write workers=hr.Workers(start=...)"),
        ({"worker_init_fn": begin}, "write workers=hr.Workers(init_fn=...)"),
        ({"prefech": 2}, "did you mean engine=hr.EngineOptions(prefetch=...)?"),
        ({"tier": 2}, "unexpected keyword 'tier'; did you mean 'tiers'?"),
        # As they were written until there were 18 arguments.
        (
            {"fields": ["label"]},
            "fields=['label']: not an argument of this name; write output=hr.Output(fields=...)",
        ),
        ({"decode": False}, "write output=hr.Output(decode=...)"),
        ({"ragged": "pad"}, "write output=hr.Output(ragged=...)"),
        ({"ids": True}, "write output=hr.Output(ids=...)"),
        ({"sharding": 3}, "write job=hr.Job(rank=..., world_size=...)"),
        (
            {"node_process": False},
            "write job=hr.Job(node=hr.Node(...)), or job=hr.Job(node=False)",
        ),
        ({"nodes": 3}, "write job=hr.Job(node=hr.Node(...))"),
        ({"cache": 3}, "write tiers=hr.Cache(tiers, placement=...)"),
        ({"budget": 3}, "write memory=budget.part(name, share)"),
    ],
)
def test_an_option_of_a_group_is_refused_with_how_it_is_written(
    numbered: Path, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, **cast(Any, arguments))
    assert str(raised.value).endswith(says)


def test_a_part_of_a_budget_is_the_memory_of_a_loader() -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Cache(**cast(Any, {"budget": 3}))
    assert str(raised.value) == (
        "budget=3: it is the loader's memory; write memory=budget.part(name, share)"
    )


def test_how_each_option_is_written_makes_its_group() -> None:
    for name, form in groups.spellings().items():
        if form.count("...") == 1 and form.endswith(f"{name}=...{')' * form.count('(')}"):
            argument, _, call = form.replace("...", "None").partition("=")
            assert type(eval(call)) is groups.GROUPS[argument]


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in former.NAMES for name in former.NAMES[module]]
)
def test_a_former_name_says_what_to_write_now(module: str, name: str) -> None:
    now = former.NAMES[module][name]
    with pytest.raises(AttributeError) as raised:
        getattr(importlib.import_module(module), name)
    assert str(raised.value) == f"module {module!r} has no attribute {name!r}; write {now}"
    written = re.findall(r"\b(?:hr|headrace)(?:\.\w+)+", now)
    assert written
    for path in written:
        place, _, last = path.replace("hr.", "headrace.").rpartition(".")
        assert getattr(importlib.import_module(place), last)


def test_other_names_are_not_guessed() -> None:
    for module in former.NAMES:
        with pytest.raises(AttributeError, match=rf"^module '{module}' has no attribute 'Any'$"):
            _ = importlib.import_module(module).Any


def test_a_loader_has_few_arguments() -> None:
    assert len(inspect.signature(hr.Loader).parameters) <= ARGUMENTS_MAX


@pytest.mark.parametrize("name", ["job", "engine"])
def test_a_group_of_another_kind_is_told_what_is_expected(numbered: Path, name: str) -> None:
    kind = groups.GROUPS[name].__name__
    for wrong in ({"rank": 0}, 3, hr.Workers(), groups.GROUPS[name]):
        with pytest.raises(errors.InvalidArgumentError) as raised:
            hr.Loader(numbered, **cast(Any, {name: wrong}))
        assert str(raised.value).startswith(f"{name}: got ")
        assert str(raised.value).endswith(
            f", must be a headrace.{kind}, as {name}=headrace.{kind}(...)"
        )


@pytest.mark.parametrize("wrong", [0, True, "train", {"name": "train"}, hr.Job()])
def test_a_node_of_another_kind_is_told_what_is_expected(numbered: Path, wrong: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, job=hr.Job(node=wrong))
    assert str(raised.value) == (
        f"Job.node: got {wrong!r}, must be a headrace.Node, as node=headrace.Node(...)"
    )


@pytest.mark.parametrize("kind", GROUPS)
def test_a_group_is_frozen_compared_hashed_pickled_and_shows_what_was_given(kind: Any) -> None:
    plain = kind()
    (first, *_) = dataclasses.fields(plain)
    changed = dataclasses.replace(plain, **{first.name: 7})
    assert repr(plain) == f"{kind.__name__}()"
    assert repr(changed) == f"{kind.__name__}({first.name}=7)"
    for each in (plain, changed):
        assert pickle.loads(pickle.dumps(each)) == each
        assert hash(each) == hash(pickle.loads(pickle.dumps(each)))
        assert eval(repr(each), vars(hr)) == each
    assert plain != changed
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(plain, first.name, 7)


def documented(kind: Any) -> set[str]:
    """The names in the section `Args` of a docstring."""
    lines = pydoc.getdoc(kind).partition("Args:\n")[2].split("\n\n")[0].splitlines()
    named = (line.partition(":")[0] for line in lines if line[4:5] not in ("", " "))
    return {name.strip() for each in named for name in each.split(",")}


@pytest.mark.parametrize("kind", GROUPS)
def test_the_docstring_of_a_group_has_each_of_its_options(kind: Any) -> None:
    assert documented(kind) == {each.name for each in dataclasses.fields(kind)}


def test_the_help_of_a_loader_has_each_argument_and_is_short() -> None:
    text = pydoc.plain(pydoc.render_doc(hr.Loader))
    lines = text.splitlines()
    if sys.version_info >= (3, 13):  # It writes one parameter a line.
        first, last = (next(i for i, line in enumerate(lines) if sign in line) for sign in "()")
        del lines[first + 1 : last + 1]
    assert len(lines) <= HELP_LINES_MAX
    assert documented(hr.Loader) == set(inspect.signature(hr.Loader).parameters)
    for method in ("explain", "stats", "state_dict", "load_state_dict", "set_epoch", "close"):
        assert f" |  {method}(self" in text


def test_the_arguments_as_one_value_have_the_defaults_of_the_loader_and_are_frozen() -> None:
    given = inspect.signature(hr.Loader).parameters
    declared = LoaderArguments()
    names = [field.name for field in dataclasses.fields(declared)]
    assert [name for name in given if name != "dataset"] == names
    assert all(getattr(declared, name) == given[name].default for name in names)
    with pytest.raises(dataclasses.FrozenInstanceError):
        declared.seed = 7  # type: ignore[misc]


def test_nothing_changes_the_options_of_the_core(numbered: Path) -> None:
    with hr.Loader(numbered, 10, engine=hr.EngineOptions(prefetch=2)) as loader:
        options = loader._feed.options
        with pytest.raises(AttributeError):
            options.batch_size = 20  # type: ignore[misc]
        with pytest.raises(AttributeError):
            options.order.parameters = {}  # type: ignore[misc]
        others = options.replace(job={"batch_size": 20}, prefetch=None)
        assert (others.batch_size, others.seed, others.prefetch) == (20, options.seed, None)
        assert (options.batch_size, options.prefetch) == (10, 2)
        with pytest.raises(
            TypeError, match="unexpected keyword argument; there are fields, job, order"
        ):
            options.replace(batchsize=3)
        with pytest.raises(errors.InvalidArgumentError, match="batch_size: got 'x', expected ano"):
            options.replace(job={"batch_size": "x"})


def test_the_groups_of_the_package_are_those_of_the_loader() -> None:
    assert [kind for _, kind in groups.group_forms()] == GROUPS
    for kind in GROUPS:
        assert kind.__name__ in hr.__all__
        assert getattr(hr, kind.__name__) is kind


def test_groups_can_be_shared_between_loaders(numbered: Path) -> None:
    engine, share = hr.EngineOptions(prefetch=2), hr.Job(rank=1, world_size=2)
    for seed in (1, 2):
        arguments: dict[str, Any] = {"engine": engine, "job": share, "seed": seed}
        with hr.Loader(numbered, 10, transform=FLAT, **arguments) as loader:
            assert epoch_ids(loader) == exact_epoch(97, 10, seed=seed, rank=1, world_size=2)
            assert loader._feed.options.prefetch == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"engine": hr.EngineOptions(io=cast(Any, "x"))},
            "EngineOptions.io: got 'x', must be one of 'auto'",
        ),
        (
            {"engine": hr.EngineOptions(prefetch=0)},
            "EngineOptions.prefetch: got 0, must be in [1, 4096]",
        ),
        (
            {"engine": hr.EngineOptions(verify=cast(Any, 1))},
            "EngineOptions.verify: got 1, must be True or False",
        ),
        (
            {"engine": hr.EngineOptions(schedule=cast(Any, 3))},
            "EngineOptions.schedule: got 3, must be the name",
        ),
        (
            {"engine": hr.EngineOptions(profile=cast(Any, 3))},
            "EngineOptions.profile: got 3, must be what",
        ),
        (
            {"engine": hr.EngineOptions(monitor=cast(Any, 3))},
            "EngineOptions.monitor: got 3, must be True or",
        ),
        ({"tiers": hr.Cache(placement=cast(Any, "x"))}, "Cache.placement: got 'x', must be one of"),
        ({"tiers": hr.Cache(placement="lru")}, "Cache(placement='lru') without tiers: there is"),
        ({"tiers": hr.Cache(horizon=2)}, "Cache(horizon=2) without tiers: only what is kept"),
        ({"tiers": hr.Cache([Ram(1000)], horizon=0)}, "Cache.horizon: got 0, must be in"),
        (
            {"memory": cast(Any, hr.tiers.Budget("1GiB"))},
            "memory: got a headrace.tiers.Budget, which several loaders share: give a part of it",
        ),
        (
            {"memory": hr.tiers.Budget("1GiB").part("a", 0.5), "tiers": Ram(1000)},
            "memory: <part 'a' of a budget: 512.0 MiB> has the budget's tiers, too: leave tiers",
        ),
        (
            {"memory": hr.tiers.Budget("1GiB").part("a", 0.5), "tiers": hr.Cache(Ram(1000))},
            "memory: <part 'a' of a budget: 512.0 MiB> has the budget's tiers, too: leave tiers",
        ),
        ({"output": cast(Any, "tensor")}, "output: got 'tensor', must be one of 'auto', 'torch'"),
        ({"output": cast(Any, None)}, "output: got None, must be one of 'auto', 'torch'"),
        ({"output": cast(Any, ["label"])}, "output: got ['label'], must be one of"),
        (
            {"output": hr.Output(fields={"label"})},
            "Output.fields: got {'label'}, a set, which has no order",
        ),
        (
            {"tiers": cast(Any, "1MB")},
            "tiers: got '1MB', must be an iterable of headrace.tiers, fastest first, or one, as",
        ),
        (
            {"output": hr.Output(cast(Any, "tensor"))},
            "Output.arrays: got 'tensor', must be one of 'auto', 'torch'",
        ),
        ({"output": hr.Output(fields=["x"])}, "Output.fields: got 'x'; the dataset has image, la"),
        ({"output": hr.Output(ids=cast(Any, 1))}, "Output.ids: got 1, must be True or False"),
        ({"output": hr.Output(decode=True)}, "Output.decode: there is no Python callable to run"),
        (
            {"output": hr.Output(ragged=cast(Any, "x"))},
            "Output.ragged: got 'x', must be one of 'error', 'pad', 'list'",
        ),
        ({"output": hr.Output(ragged="pad")}, "Output(ragged='pad'): no field has arrays of"),
        ({"job": hr.Job(rank=1)}, "Job(rank=1, world_size=None): give both, or"),
        (
            {"job": hr.Job(rank=2, world_size=2)},
            "Job.rank: got 2, must be in [0, 1]",
        ),
        ({"job": hr.Job(node=hr.Node(start_timeout=0))}, "Node.start_timeout: got 0,"),
        ({"job": hr.Job(node=hr.Node(local_rank=1))}, "Node(local_rank=1, local_world_"),
        ({"workers": hr.Workers(-1), "transform": doubled}, "Workers.count: got -1, must be in"),
        ({"workers": -1, "transform": doubled}, "workers: got -1, must be in [0, 1024]"),
        ({"workers": hr.Workers(start=cast(Any, "x"))}, "Workers.start: got 'x', must be one of"),
        (
            {"workers": hr.Workers(collate_fn=cast(Any, 3))},
            "Workers.collate_fn: got 3, must be cal",
        ),
        ({"workers": hr.Workers(init_fn=begin)}, "Workers.init_fn: there is no Python callable to"),
    ],
)
def test_errors_name_an_option_in_its_group(
    numbered: Path, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, **arguments)
    assert str(raised.value).startswith(says)


def epochs(numbered: Path, **options: Any) -> tuple[list[list[int]], Any]:
    """Two epochs, and what is kept in tiers: their capacity, placement and horizon."""
    with hr.Loader(numbered, 10, transform=FLAT, seed=3, **options) as loader:
        ids = [epoch_ids(loader) for _ in range(2)]
        tiers = [tier["capacity"] for tier in loader.stats()["tiers"]]
        return ids, (tiers, loader._feed.options.placement, loader._feed.options.horizon_epochs)


def test_short_forms_mean_their_groups(numbered: Path) -> None:
    for short, long in (
        ({"tiers": Ram("1MiB")}, {"tiers": hr.Cache(Ram("1MiB"))}),
        ({"tiers": [Ram("1MiB")]}, {"tiers": hr.Cache([Ram("1MiB")], placement="coordinated")}),
        ({"output": "numpy"}, {"output": hr.Output("numpy")}),
        ({}, {"output": hr.Output(), "tiers": hr.Cache(), "job": hr.Job()}),
    ):
        assert epochs(numbered, **short) == epochs(numbered, **long)  # type: ignore[arg-type]


def test_a_part_of_a_budget_brings_its_tiers_and_takes_a_placement(numbered: Path) -> None:
    budget = hr.tiers.Budget("64MiB", [Ram("2MiB")])
    plain, placed = budget.part("plain", 0.5), budget.part("placed", 0.5)
    ids, (tiers, placement, horizon) = epochs(numbered, memory=plain)
    assert (tiers, placement, horizon) == ([2**20], "coordinated", 16)
    cache = hr.Cache(placement="frequency", horizon=4)
    again, (tiers, placement, horizon) = epochs(numbered, memory=placed, tiers=cache)
    assert (tiers, placement, horizon) == ([2**20], "frequency", 4)
    assert ids == again == epochs(numbered)[0]


def test_what_can_be_iterated_once_serves_two_loaders(numbered: Path) -> None:
    cache = hr.Cache(iter([hr.tiers.Ram("1MB")]))
    output = hr.Output("numpy", fields=(name for name in ["image"]))
    for _ in range(2):
        with hr.Loader(numbered, 4, tiers=cache, output=output) as loader:
            assert next(iter(loader))._fields == ("image",)
            assert len(loader.stats()["tiers"]) == 1
