"""A loader that takes the parameters of a state's order, which needs a new core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loader_data import FLAT, epoch_ids

import headrace as hr
from headrace import errors, orders
from headrace._loading import session

OTHER = orders.Epoch(pool="50%", pools=3, block_samples=5)
# The data is sorted by class, as folders are.
pytestmark = pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")


def make(dataset: Path, order: orders.Order | Any) -> hr.Loader:
    return hr.Loader(dataset, 12, transform=FLAT, seed=6, order=order)


@pytest.fixture
def other_state(numbered: Path) -> dict[str, Any]:
    """The state of a run whose order has other parameters than `epoch` has by default."""
    with make(numbered, OTHER) as loader:
        next(iter(loader))
        return loader.state_dict()


def interrupt_closing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Ctrl-C that comes the first few times that a core is closed."""
    closed, left = session.closed_core, iter(range(times))

    def interrupted(*args: Any) -> None:
        closed(*args)
        if next(left, None) is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(session, "closed_core", interrupted)


def test_ctrl_c_in_a_restore_that_takes_parameters_leaves_the_loader_as_it_was(
    numbered: Path, other_state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(numbered, "epoch") as loader:
        epochs = [epoch_ids(loader) for _ in range(2)]
    with make(numbered, "epoch") as loader:
        running = iter(loader)
        next(running)
        before = loader.state_dict()
        interrupt_closing(monkeypatch, 1)
        with pytest.raises(KeyboardInterrupt):
            loader.load_state_dict(other_state)
        assert loader.state_dict() == before
        with pytest.raises(errors.FailedPreconditionError, match="iteration of the loader is over"):
            next(running)
        assert epoch_ids(loader) == epochs[1]  # `running` was left early.
        loader.load_state_dict(before)
        assert epoch_ids(loader) == epochs[0][1:]
        loader.load_state_dict(other_state)
        assert loader.state_dict() == other_state


def test_ctrl_c_twice_in_a_restore_closes_the_loader(
    numbered: Path, other_state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(numbered, "epoch") as loader:
        interrupt_closing(monkeypatch, 2)
        with pytest.raises(KeyboardInterrupt):
            loader.load_state_dict(other_state)
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            iter(loader)
        assert loader.stats()["samples"] == 0


def test_a_restore_that_cannot_open_its_order_ends_the_iteration(
    numbered: Path, other_state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(numbered, "epoch") as loader:
        epoch = epoch_ids(loader)
        loader.set_epoch(0)
        running = iter(loader)
        next(running)
        opened, left = session.open_core, iter(range(1))

        def failing(*args: Any) -> Any:
            if next(left, None) is not None:
                raise errors.UnavailableError("no node process")
            return opened(*args)

        monkeypatch.setattr(session, "open_core", failing)
        with pytest.raises(errors.UnavailableError, match="no node process"):
            loader.load_state_dict(other_state)
        with pytest.raises(errors.FailedPreconditionError, match="iteration of the loader is over"):
            next(running)
        loader.set_epoch(0)
        assert epoch_ids(loader) == epoch


def test_the_expected_inflation_is_that_of_the_parameters_taken(
    numbered: Path, other_state: dict[str, Any]
) -> None:
    with make(numbered, OTHER) as loader:
        expected = loader.expected_inflation
    with make(numbered, "epoch") as loader:
        assert loader.expected_inflation != expected
        loader.load_state_dict(other_state)
        assert loader.expected_inflation == expected
