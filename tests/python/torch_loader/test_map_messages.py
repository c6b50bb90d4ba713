"""Messages of a DataLoader that no other test makes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from headrace import errors
from headrace.torch import DataLoader, EpochSampler
from headrace.torch._dataloader.iterations import iteration


def test_an_iteration_of_another_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loader: Any = DataLoader(range(8), 2, num_workers=1)  # type: ignore[arg-type]
    batches: Any = iter(loader)
    next(batches)
    with monkeypatch.context() as patch:
        patch.setattr(iteration.os, "getpid", lambda: 1)  # As in a process that was forked.
        with pytest.raises(errors.FailedPreconditionError) as raised:
            next(batches)
    assert "and its workers are not in a process that was forked from it" in str(raised.value)
    assert str(raised.value).endswith("begin an iteration in this one")
    assert next(batches).tolist() == [2, 3]
    batches.close()


def test_a_sampler_without_keys_is_named() -> None:
    nothing: Any = []
    with pytest.raises(
        RuntimeError, match="gave no keys: give a sampler that gives some in each pass"
    ):
        next(iter(EpochSampler(nothing, 4)))
