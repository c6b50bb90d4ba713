"""Groups of options, and the earlier names of what they hold: each with its warning."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import pickle
import pydoc
import sys
import warnings
from pathlib import Path
from typing import Any, cast

import pytest
from loader_data import FLAT, epoch_ids
from order_model import exact_epoch

import headrace as hr
from headrace import errors
from headrace._options import flat
from headrace.tiers import Budget, Ram

HELP_LINES_MAX = 110
GROUPS = [hr.Workers, hr.Cache, hr.Sharding, hr.NodeProcess, hr.Nodes, hr.Engine]


def doubled(sample: hr.Sample) -> Any:
    return sample.label * 2


def summed(samples: list[Any]) -> int:
    return int(sum(int(each) for each in samples))


def begin(number: int) -> None:
    """In each worker."""


PART = Budget("64MiB", [Ram("100KiB")]).part("all", 1.0)
TIER: dict[str, Any] = {"tiers": [Ram("1MiB")], "epochs": 3}
PYTHON: dict[str, Any] = {"transform": doubled}
EARLIER: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = [
    # Earlier; now; what the warning says to write; other arguments.
    (
        {"worker_start": "fork"},
        {"workers": hr.Workers(start="fork")},
        "write workers=hr.Workers(start='fork')",
        PYTHON,
    ),
    (
        {"workers": 2, "worker_start": "fork"},
        {"workers": hr.Workers(2, start="fork")},
        "write workers=hr.Workers(2, start='fork')",
        PYTHON,
    ),
    (
        {"workers": 0, "collate_fn": summed},
        {"workers": hr.Workers(0, collate_fn=summed)},
        "write workers=hr.Workers(0, collate_fn=summed)",
        PYTHON,
    ),
    (
        {"worker_start": "fork", "worker_init_fn": begin},
        {"workers": hr.Workers(start="fork", init_fn=begin)},
        "write workers=hr.Workers(start='fork', init_fn=begin)",
        PYTHON,
    ),
    (
        {"placement": "lru"},
        {"cache": hr.Cache(placement="lru")},
        "write cache=hr.Cache(placement='lru')",
        TIER,
    ),
    (
        {"horizon": 2},
        {"cache": hr.Cache(horizon=2)},
        "write cache=hr.Cache(horizon=2)",
        TIER,
    ),
    ({"budget": PART}, {"cache": hr.Cache(budget=PART)}, "write cache=hr.Cache(budget=...)", {}),
    (
        {"rank": 1, "world_size": 2},
        {"sharding": hr.Sharding(rank=1, world_size=2)},
        "write sharding=hr.Sharding(rank=1, world_size=2)",
        {},
    ),
    ({"isolation": "thread"}, {"node_process": False}, "write node_process=False", {}),
    ({"isolation": None, "start_timeout": 7}, {}, "leave isolation, start_timeout out", {}),
    (
        {"isolation": "process"},
        {"node_process": hr.NodeProcess()},
        "write node_process=hr.NodeProcess()",
        {},
    ),
    (
        {"isolation": "process", "local_rank": 0, "local_world_size": 1, "start_timeout": 60},
        {"node_process": hr.NodeProcess(local_rank=0, local_world_size=1, start_timeout=60)},
        "write node_process=hr.NodeProcess(local_rank=0, local_world_size=1, start_timeout=60)",
        {},
    ),
    (
        {"node": "no such", "start_timeout": 1},
        {"node_process": hr.NodeProcess(name="no such", start_timeout=1)},
        "write node_process=hr.NodeProcess(name='no such', start_timeout=1)",
        {},
    ),
    (
        {"io": "threads"},
        {"engine": hr.Engine(io="threads")},
        "write engine=hr.Engine(io='threads')",
        {},
    ),
    (
        {"verify": False, "prefetch": 3},
        {"engine": hr.Engine(verify=False, prefetch=3)},
        "write engine=hr.Engine(verify=False, prefetch=3)",
        {},
    ),
    (
        {"profile": Path("no such.toml")},
        {"engine": hr.Engine(profile=Path("no such.toml"))},
        "write engine=hr.Engine(profile='no such.toml')",
        {},
    ),
    (
        {"schedule": "lobster"},
        {"engine": hr.Engine(schedule="lobster")},
        "write engine=hr.Engine(schedule='lobster')",
        {},
    ),
    (
        {"monitor": True},
        {"engine": hr.Engine(monitor=True)},
        "write engine=hr.Engine(monitor=True)",
        {},
    ),
    (
        {"io": "threads", "rank": 0, "world_size": 1, "prefetch": 2, "isolation": "thread"},
        {
            "engine": hr.Engine(io="threads", prefetch=2),
            "sharding": hr.Sharding(rank=0, world_size=1),
            "node_process": False,
        },
        "write engine=hr.Engine(io='threads', prefetch=2), "
        "write sharding=hr.Sharding(rank=0, world_size=1), write node_process=False",
        {},
    ),
]


def options_of(loader: hr.Loader) -> dict[str, Any]:
    """What the core was made with."""
    options = loader._feed.options
    names = (name for name in dir(options) if not name.startswith("_"))
    found = {name: getattr(options, name) for name in names}
    found["order"] = options.order.name, options.order.parameters
    return {name: value for name, value in found.items() if not callable(value)}


def seen(source: Path, arguments: dict[str, Any]) -> Any:
    """All that a loader with these arguments shows: its core's options, its batches; or its error.

    What differs from one loader to the next, as times, is left out.
    """
    try:
        loader = hr.Loader(source, 10, **{"output": "numpy", "seed": 4} | arguments)
    except (errors.HeadraceError, OSError) as error:
        return type(error), str(error)
    with loader:
        batches = [
            batch if isinstance(batch, int) else [np_bytes(field) for field in batch]
            for batch in loader
        ]
        monitored = loader._monitor is not None
        place = loader._feed._session.place
        local = place and (place.local_rank, place.local_world_size, place.start_timeout)
        transformer = loader._transformer
        python = transformer and dataclasses.replace(transformer._python)
        return options_of(loader), batches, monitored, local, python


def np_bytes(field: Any) -> Any:
    return [bytes(row) for row in field] if isinstance(field, list) else field.tobytes()


def test_every_earlier_name_is_kept_here() -> None:
    kept = set(itertools.chain.from_iterable(earlier for earlier, *_ in EARLIER)) - {"workers"}
    assert kept == set(flat.FLAT)
    groups = {kind.__name__: {each.name for each in dataclasses.fields(kind)} for kind in GROUPS}
    for argument, field in flat.FLAT.values():
        assert field == "" or field in groups[flat.GROUPS[argument].__name__]


@pytest.mark.parametrize(
    ("earlier", "now", "written", "others"), EARLIER, ids=[",".join(each[0]) for each in EARLIER]
)
def test_an_earlier_name_warns_with_the_new_spelling_and_does_the_same(
    numbered: Path,
    earlier: dict[str, Any],
    now: dict[str, Any],
    written: str,
    others: dict[str, Any],
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FutureWarning)
        before = seen(numbered, {**others, **earlier})
    (warning,) = [each for each in caught if each.category is FutureWarning]
    names = ", ".join(f"{name}=" for name in earlier if name != "workers")
    assert str(warning.message) == (
        f"headrace.Loader: {names}: earlier names of options, which the next version refuses; "
        f"{written}"
    )
    assert warning.filename == __file__
    assert before == seen(numbered, {**others, **now})


def test_an_earlier_name_is_an_error_where_warnings_are(numbered: Path) -> None:
    with pytest.raises(FutureWarning, match=r"write engine=hr.Engine\(prefetch=2\)"):
        hr.Loader(numbered, **cast(Any, {"prefetch": 2}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"engine": hr.Engine(io="threads"), "prefetch": 2},
            "prefetch= beside engine=: prefetch is an option of that group now: write "
            "engine=hr.Engine(prefetch=...) with the group's other options",
        ),
        (
            {"workers": hr.Workers(2), "collate_fn": summed},
            "collate_fn= beside workers=: collate_fn is an option of that group now: write "
            "workers=hr.Workers(collate_fn=...) with the group's other options",
        ),
        (
            {"node_process": hr.NodeProcess(), "isolation": "process"},
            "isolation= beside node_process=: isolation is an option of that group now: write "
            "node_process=hr.NodeProcess() with the group's other options",
        ),
    ],
)
def test_an_earlier_name_together_with_its_group_is_one_error(
    numbered: Path, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, **arguments)
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"isolation": "fork"}, "isolation: got 'fork'"),
        ({"isolation": "thread", "node": "x"}, "node='x' with isolation='thread'"),
        ({"local_rank": 0, "local_world_size": 2}, "local_rank=0.*without a node process"),
        ({"isolation": "thread", "local_world_size": 2}, "local_world_size=2 without a node"),
        ({"start_timeout": True}, "start_timeout: got True"),
    ],
)
def test_earlier_names_that_contradict_each_other_are_refused_as_they_were(
    numbered: Path, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=says):
        hr.Loader(numbered, **arguments)


@pytest.mark.parametrize("name", ["cache", "sharding", "node_process", "engine"])
def test_a_group_of_another_kind_is_told_what_is_expected(numbered: Path, name: str) -> None:
    kind = flat.GROUPS[name].__name__
    for wrong in ({"rank": 0}, 3, hr.Workers(), flat.GROUPS[name]):
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


def test_the_groups_of_the_package_are_those_of_the_loader() -> None:
    assert set(GROUPS) == set(flat.GROUPS.values())
    for kind in GROUPS:
        assert kind.__name__ in hr.__all__
        assert getattr(hr, kind.__name__) is kind


def test_groups_can_be_shared_between_loaders(numbered: Path) -> None:
    engine, share = hr.Engine(prefetch=2), hr.Sharding(rank=1, world_size=2)
    for seed in (1, 2):
        arguments: dict[str, Any] = {"engine": engine, "sharding": share, "seed": seed}
        with hr.Loader(numbered, 10, transform=FLAT, **arguments) as loader:
            assert epoch_ids(loader) == exact_epoch(97, 10, seed=seed, rank=1, world_size=2)
            assert loader._feed.options.batches_ahead == 2


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
