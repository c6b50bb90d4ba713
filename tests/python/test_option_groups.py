"""Groups of options."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import pydoc
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
from headrace.tiers import Ram

HELP_LINES_MAX = 110
GROUPS = [hr.Workers, hr.Cache, hr.Sharding, hr.NodeProcess, hr.Nodes, hr.Engine]


def doubled(sample: hr.Sample) -> Any:
    return sample.label * 2


def summed(samples: list[Any]) -> int:
    return int(sum(int(each) for each in samples))


def begin(number: int) -> None:
    """In each worker."""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"prefetch": 2}, "prefetch=2: an option of a group; write engine=hr.Engine(prefetch=...)"),
        ({"collate_fn": summed}, "write workers=hr.Workers(collate_fn=...)"),
        ({"rank": 1, "world_size": 2}, "write sharding=hr.Sharding(rank=...)"),
        ({"placement": "reuse"}, "write cache=hr.Cache(placement=...)"),
        ({"local_rank": 0}, "write node_process=hr.NodeProcess(local_rank=...)"),
        (
            {"isolation": "thread"},
            "isolation='thread': an option of a group; write node_process=False, or "
            "node_process=hr.NodeProcess()",
        ),
        (
            {"node": "train"},
            "node='train': an option of a group; write node_process=hr.NodeProcess(name=...)",
        ),
        ({"worker_start": "fork"}, "write workers=hr.Workers(start=...)"),
        ({"worker_init_fn": begin}, "write workers=hr.Workers(init_fn=...)"),
        ({"prefech": 2}, "did you mean engine=hr.Engine(prefetch=...)?"),
    ],
)
def test_an_option_of_a_group_is_refused_with_how_it_is_written(
    numbered: Path, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, **cast(Any, arguments))
    assert str(raised.value).endswith(says)


@pytest.mark.parametrize("name", ["cache", "sharding", "node_process", "engine"])
def test_a_group_of_another_kind_is_told_what_is_expected(numbered: Path, name: str) -> None:
    kind = groups.GROUPS[name].__name__
    for wrong in ({"rank": 0}, 3, hr.Workers(), groups.GROUPS[name]):
        with pytest.raises(errors.InvalidArgumentError) as raised:
            hr.Loader(numbered, **cast(Any, {name: wrong}))
        assert str(raised.value).startswith(f"{name}: got ")
        assert str(raised.value).endswith(
            f", must be a headrace.{kind}, as {name}=headrace.{kind}(...)"
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
    with hr.Loader(numbered, 10, engine=hr.Engine(prefetch=2)) as loader:
        options = loader._feed.options
        with pytest.raises(AttributeError):
            options.batch_size = 20  # type: ignore[misc]
        with pytest.raises(AttributeError):
            options.order.parameters = {}  # type: ignore[misc]
        others = options.replace(job={"batch_size": 20}, prefetch=None)
        assert (others.batch_size, others.seed, others.prefetch) == (20, options.seed, None)
        assert (options.batch_size, options.prefetch) == (10, 2)
        with pytest.raises(TypeError, match="unexpected keyword argument; there are job, order"):
            options.replace(batchsize=3)
        with pytest.raises(errors.InvalidArgumentError, match="batch_size: got 'x', expected ano"):
            options.replace(job={"batch_size": "x"})


def test_the_groups_of_the_package_are_those_of_the_loader() -> None:
    assert set(GROUPS) == set(groups.GROUPS.values())
    for kind in GROUPS:
        assert kind.__name__ in hr.__all__
        assert getattr(hr, kind.__name__) is kind


def test_groups_can_be_shared_between_loaders(numbered: Path) -> None:
    engine, share = hr.Engine(prefetch=2), hr.Sharding(rank=1, world_size=2)
    for seed in (1, 2):
        arguments: dict[str, Any] = {"engine": engine, "sharding": share, "seed": seed}
        with hr.Loader(numbered, 10, transform=FLAT, **arguments) as loader:
            assert epoch_ids(loader) == exact_epoch(97, 10, seed=seed, rank=1, world_size=2)
            assert loader._feed.options.prefetch == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"engine": hr.Engine(io=cast(Any, "x"))}, "Engine.io: got 'x', must be one of 'auto'"),
        ({"engine": hr.Engine(prefetch=0)}, "Engine.prefetch: got 0, must be in [1, 4096]"),
        ({"engine": hr.Engine(verify=cast(Any, 1))}, "Engine.verify: got 1, must be True or False"),
        ({"engine": hr.Engine(schedule=cast(Any, 3))}, "Engine.schedule: got 3, must be the name"),
        ({"engine": hr.Engine(profile=cast(Any, 3))}, "Engine.profile: got 3, must be what"),
        ({"engine": hr.Engine(monitor=cast(Any, 3))}, "Engine.monitor: got 3, must be True or"),
        ({"cache": hr.Cache(placement=cast(Any, "x"))}, "Cache.placement: got 'x', must be one of"),
        ({"cache": hr.Cache(placement="lru")}, "Cache(placement='lru') without tiers=: there is"),
        ({"cache": hr.Cache(horizon=2)}, "Cache(horizon=2) without tiers=: only what is kept"),
        ({"cache": hr.Cache(horizon=0), "tiers": [Ram(1000)]}, "Cache.horizon: got 0, must be in"),
        ({"cache": hr.Cache(budget=cast(Any, 3))}, "Cache.budget: got 3, must be what headrace"),
        ({"sharding": hr.Sharding(rank=1)}, "Sharding(rank=1, world_size=None): give both, or"),
        (
            {"sharding": hr.Sharding(rank=2, world_size=2)},
            "Sharding.rank: got 2, must be in [0, 1]",
        ),
        ({"node_process": hr.NodeProcess(start_timeout=0)}, "NodeProcess.start_timeout: got 0,"),
        ({"node_process": hr.NodeProcess(local_rank=1)}, "NodeProcess(local_rank=1, local_world_"),
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
