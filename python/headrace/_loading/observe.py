"""Statistics of a Loader: the part of `headrace.Loader` that only reads counters."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from headrace import _core as native
from headrace._arguments import flag, given_path, integer
from headrace._dataset import Dataset, image_folder
from headrace._loading.audit import audited
from headrace._loading.facts import facts_of, loader_html
from headrace._loading.feed import EpochFeed
from headrace._loading.options import EPOCHS_MAX, profile_learned
from headrace._observe import prometheus
from headrace._observe._steps import plot
from headrace._observe._steps.trace import write_trace
from headrace._observe.account import Account, LoaderFacts, account
from headrace._observe.advice import DataFacts
from headrace._observe.computed import make_stats
from headrace._observe.explanation import ExplainedParameter, Explanation
from headrace._observe.monitor import Monitor
from headrace._observe.stats import Stats
from headrace.errors import FailedPreconditionError, HeadraceError, InvalidArgumentError
from headrace.formats._base.outside import check_outside

if TYPE_CHECKING:
    from headrace._workers import Core

_REUSE_EPOCHS = 3
_REUSE_SAMPLES_MAX = 5_000_000  # With more samples counting takes too long for a chart.


class Observed:
    """Base of `headrace.Loader`; see there."""

    def __init__(self, feed: EpochFeed, data: DataFacts, profile: Any) -> None:
        self._feed = feed
        self._data = data
        self._profile = profile

    @property
    def dataset(self) -> Dataset:
        """The dataset that the loader reads."""
        return self._feed.dataset

    @property
    def _core(self) -> Core:
        return self._feed.core

    def __repr__(self) -> str:
        return (
            f"<headrace.Loader of {self.dataset.path!r}: "
            f"batch_size {self._feed.options.batch_size}, "
            f"{', '.join(self._feed.delivers.kinds)}; "
            f"epoch {self._feed.cursor.at.epoch}, step {self._feed.cursor.at.step}>"
        )

    def stats(self) -> Stats:
        """What each rank of the loader's engine did so far: rates, stalls by cause, bytes by
        source, memory by use; ``stats()["verdict"]`` sums it up. `headrace docs observe`."""
        at = self._feed.cursor.at
        rank = self._feed.options.rank
        return make_stats(self._core.stats(), at.epoch, at.step, rank, self._data)

    def _repr_html_(self) -> str | None:
        """For notebooks. None, which shows text: the loader is closed and counts nothing."""
        try:
            return loader_html(self._facts(), self.stats())
        except HeadraceError:
            return None

    @overload
    def explain(self) -> Account: ...
    @overload
    def explain(self, step: int, epoch: int | None = None) -> Explanation: ...
    def explain(self, step: int | None = None, epoch: int | None = None) -> Account | Explanation:
        """What the loader does and why, in sentences; or, for a step, where each sample and each
        parameter of the order comes from. Print it."""
        feed = self._feed
        feed.check_open()
        at = feed.cursor.at
        if step is None:
            if epoch is not None:
                raise InvalidArgumentError(
                    f"explain: got epoch={epoch!r} without a step: say which, as explain(0, "
                    f"epoch={epoch!r}); or leave epoch out"
                )
            return account(self._facts(), self.stats())
        epoch = at.epoch if epoch is None else integer("epoch", epoch, 0, EPOCHS_MAX - 1)
        if feed.source is None:
            step = integer("step", step, 0, feed.order.steps - 1)
            return self._explanation(epoch, step, self._core.explain(epoch, step))
        if at.plan is None or epoch != at.epoch:
            raise FailedPreconditionError(
                f"explaining epoch {epoch}: a sampler determines its order, known only for the "
                "epoch that is being iterated; leave epoch= out"
            )
        step = integer("step", step, 0, len(at.plan) - 1)
        return self._explanation(epoch, step, self._core.explain_rows(at.plan.batch(step)))

    def audit(self, stats: Sequence[Stats] | None = None) -> list[int]:
        """The epochs in which each sample was delivered once, of those that `headrace docs observe`
        says are checked; of all ranks, if `stats` has what ``stats()`` gives on each of them.
        Raises DataLossError if other samples were delivered."""
        self._feed.check_open()
        return audited(self._feed, self.stats(), stats)

    def _explanation(
        self, epoch: int, step: int, rows: list[tuple[int, int, str, str, str, int, int, str]]
    ) -> Explanation:
        return Explanation(epoch, step, rows, self._feed.options.order.name, self._parameters())

    def _parameters(self) -> dict[str, ExplainedParameter]:
        """Those of the order."""
        core = self._core
        parameters = {}
        for name, value in core.order_parameters.items():
            origin = str(core.order_origins[name])
            if origin == "given" and name not in self._feed.order.chosen:
                origin = "from the state"
            parameters[name] = ExplainedParameter(value, origin)
        return parameters

    def _facts(self) -> LoaderFacts:
        return facts_of(self._feed, self._parameters())

    def save_profile(self, path: str | os.PathLike[str]) -> None:
        """Writes the loader's profile with the measured preprocessing times, for the next run."""
        self._feed.check_open()
        check_outside("writing profile", path, image_folder(self.dataset))
        profile_learned(self._profile, self._core).save(path)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the times of the newest 4,096 batches, as JSON for https://ui.perfetto.dev."""
        self._feed.check_open()
        check_outside("writing the trace", path, image_folder(self.dataset))
        write_trace(
            Path(given_path("writing the trace", path)),
            self._core.step_times(),
            self._feed.options.rank - self._core.stats()["lane"],
        )

    def prometheus(self) -> str:
        """``stats()`` in the text format that Prometheus reads."""
        self._feed.check_open()
        return prometheus.expose([({}, self._snapshot())])

    def report(self, path: str | os.PathLike[str]) -> None:
        """Draws times of batches, waits and sources of bytes: ``report("x.png")``."""
        self._feed.check_open()
        check_outside("writing the chart", path, image_folder(self.dataset))
        chart = Path(given_path("writing the chart", path))
        plot.check(chart)
        plot.draw(chart, self._observation())

    def _snapshot(self) -> dict[str, Any]:
        """Statistics for other processes, as values of JSON."""
        return {
            "version": 1,
            "pid": os.getpid(),
            "rank": self._feed.options.rank,
            "world_size": self._feed.options.world_size,
            "dataset": str(self.dataset.path),
            "monotonic_ns": time.monotonic_ns(),
            "stats": self.stats(),
        }

    def _observation(self) -> dict[str, Any]:
        """The snapshot with the data of a report."""
        steps = {name: column.tolist() for name, column in self._core.step_times().items()}
        return self._snapshot() | {
            "steps": steps,
            "reuse": self._reuse(),
            "image_folder": image_folder(self.dataset),
        }

    def _reuse(self) -> dict[str, Any] | None:
        """Reuse distances; None if a sampler decides the order, or counting takes too long."""
        epochs = min(_REUSE_EPOCHS, self._feed.options.epochs)
        if self._feed.source is not None or len(self.dataset) * epochs > _REUSE_SAMPLES_MAX:
            return None
        try:
            return native.reuse_distances(self.dataset.index, self._feed.options, epochs)
        except HeadraceError:
            return None


def _asked_by_environment() -> bool:
    setting = os.environ.get("HEADRACE_MONITOR", "")
    if setting not in ("", "0", "1"):
        raise InvalidArgumentError(
            f"environment HEADRACE_MONITOR={setting!r}: must be 1, which shows loaders in "
            "`headrace top`, or 0"
        )
    return setting == "1"


def watch(
    loader: Observed, monitor: bool | None, job: Callable[[], dict[str, Any] | None]
) -> Monitor | None:
    """Starts a monitor that other processes can query, if the user asked for one.

    `job`: what is known of the job's other nodes; does not refer to the loader.
    """
    if monitor is None:
        monitor = _asked_by_environment()
    if not flag("EngineOptions.monitor", monitor):
        return None
    reference = weakref.ref(loader)  # The monitor's thread must not keep the loader alive.

    def answer(request: str) -> dict[str, Any]:
        here = reference()
        if here is None:
            return {"error": "the loader is gone"}
        said = here._snapshot() if request == "stats" else here._observation()
        return said | {"job": job()}

    return Monitor(answer)
