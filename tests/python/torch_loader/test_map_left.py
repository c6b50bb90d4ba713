"""Epochs after one that was left early, and those of persistent workers: in torch's order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data
from map_data import WAYS, OnlyIds, plain
from test_map_state import COUNT, EPOCHS, arguments_of, make, seeded, through_json
from torch.utils.data import RandomSampler, WeightedRandomSampler

from headrace.torch import DataLoader


@pytest.mark.parametrize("name", ["shuffled", "generator", "lazy", "its own"])
def test_persistent_workers_go_on_at_every_step(name: str) -> None:
    """torch draws one base seed for all their epochs, so that the orders are others."""
    torch.manual_seed(1)
    how = {"num_workers": 2, "persistent_workers": True}
    theirs = torch.utils.data.DataLoader(**arguments_of(name), **how)
    expected = [[plain(batch) for batch in theirs] for _ in range(EPOCHS)]
    del theirs
    for epoch, step in ((0, 0), (0, 2), (0, len(expected[0])), (1, 1), (1, len(expected[1]))):
        torch.manual_seed(1)
        first, second = make(name, **how), make(name, **how)
        for _ in range(epoch):
            list(first)
        iterator = iter(first)
        for _ in range(step):
            next(iterator)
        state = through_json(first.state_dict())
        del iterator
        torch.manual_seed(77)
        second.load_state_dict(state)
        rest = [[plain(batch) for batch in second] for _ in range(EPOCHS - epoch)]
        straight = expected[epoch:]
        straight[0] = straight[0][step:]
        straight = straight if straight[0] else straight[1:]
        assert rest[: len(straight)] == straight, (epoch, step)
        first.close()
        second.close()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [0, 1, 4, 6])
@pytest.mark.parametrize("name", ["generator", "lazy", "its own", "weighted by its own"])
def test_after_an_epoch_that_was_left_samplers_go_on_as_with_torch(
    name: str, count: int, way: str
) -> None:
    """Whatever was read ahead: they have drawn what torch's, with as many workers, has drawn."""

    def left(loader: torch.utils.data.DataLoader[Any]) -> list[Any]:
        iterator = iter(loader)
        for _ in range(count):
            next(iterator)
        del iterator
        return [[plain(batch) for batch in loader] for _ in range(2)]

    def given() -> dict[str, Any]:
        own = seeded()
        data = OnlyIds(COUNT)
        return {
            "generator": {"shuffle": True, "generator": own},
            "lazy": {"sampler": RandomSampler(data, True, 24, generator=own), "generator": own},
            "its own": {"sampler": RandomSampler(data, generator=own)},
            "weighted by its own": {
                "sampler": WeightedRandomSampler(torch.arange(COUNT) + 1.0, 24, generator=own)
            },
        }[name]

    how = {
        name: WAYS[way][name] for name in ("num_workers", "persistent_workers") if name in WAYS[way]
    }
    theirs = torch.utils.data.DataLoader(OnlyIds(COUNT), 4, **given(), **how)
    expected = left(theirs)
    loader = DataLoader(OnlyIds(COUNT), 4, **given(), **WAYS[way])
    assert left(loader) == expected
    assert loader.state_dict()["epoch"] == 3
    loader.close()


def test_a_generator_that_others_draw_from_is_left_alone() -> None:
    own = seeded()
    loader = DataLoader(OnlyIds(COUNT), 4, shuffle=True, generator=own, **WAYS["threads"])
    iterator = iter(loader)
    next(iterator)
    del iterator
    torch.rand(3, generator=own)
    before = own.get_state()
    theirs = torch.Generator()
    theirs.set_state(before)
    expected = [
        plain(batch)
        for batch in torch.utils.data.DataLoader(OnlyIds(COUNT), 4, shuffle=True, generator=theirs)
    ]
    assert [plain(batch) for batch in loader] == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_state_after_the_last_batch_is_what_follows(way: str) -> None:
    """Also if the loop did not ask for the end, where generators are drawn from."""
    first = make("its own", **WAYS[way])
    iterator = iter(first)
    for _ in range(len(first)):
        next(iterator)
    second = make("its own", **WAYS[way])
    second.load_state_dict(through_json(first.state_dict()))
    assert [plain(batch) for batch in second] == [plain(batch) for batch in first]
    first.close()
    second.close()


def test_a_sampler_that_failed_is_not_drawn_again_for_its_generator() -> None:
    weights = torch.zeros(COUNT)
    sampler = WeightedRandomSampler(weights, 8, generator=seeded())
    loader = DataLoader(OnlyIds(COUNT), 4, sampler=sampler, **WAYS["threads"])
    for _ in range(2):
        iterator = iter(loader)
        with pytest.raises(RuntimeError):
            next(iterator)
    weights += 1
    sampler.weights += 1
    assert sum(len(batch) for batch in loader) == 8
