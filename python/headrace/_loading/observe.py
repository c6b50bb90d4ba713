"""Statistics of a Loader: the part of `headrace.Loader` that only reads counters."""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import _core as native
from headrace._arguments import flag, given_path, integer
from headrace._dataset import Dataset, image_folder
from headrace._loading.options import EPOCHS_MAX, profile_learned
from headrace._loading.sampling import EpochPlan, SamplerSource
from headrace._observe import plot, prometheus
from headrace._observe.advice import DataFacts
from headrace._observe.monitor import Monitor
from headrace._observe.report import ExplainedParameter, Explanation, Stats, make_stats
from headrace._observe.trace import write_trace
from headrace.errors import FailedPreconditionError, HeadraceError
from headrace.formats._outside import check_outside

if TYPE_CHECKING:
    from headrace._workers import Core

_REUSE_EPOCHS = 3
_REUSE_SAMPLES_MAX = 5_000_000  # Beyond, counting takes too long for a chart.


class Observed:
    """Base of `headrace.Loader`; see there."""

    dataset: Dataset
    _profile: Any
    _options: native.LoaderOptions
    _epoch: int
    _step: int
    _steps_per_epoch: int
    _plan: EpochPlan | None
    _rank: int
    _data: DataFacts
    _source: SamplerSource | None
    _closed: bool
    _fields: list[str]
    _given: dict[str, int | str]  # parameters of the order
    _monitor: Monitor | None = None

    @property
    def _core(self) -> Core:
        raise NotImplementedError

    def __repr__(self) -> str:
        return (
            f"<headrace.Loader of {self.dataset.path!r}: batch_size {self._options.batch_size}, "
            f"{', '.join(self._fields)}; epoch {self._epoch}, step {self._step}>"
        )

    def stats(self) -> Stats:
        """What the loader did so far: rates, stalls by cause, bytes by source, memory by use; of
        each rank of its engine, and in one line: ``stats()["verdict"]``. `headrace docs observe`.

        Of a loader that is closed, the last ones."""
        return make_stats(self._core.stats(), self._epoch, self._step, self._rank, self._data)

    def explain(self, step: int, epoch: int | None = None) -> Explanation:
        """Where each sample of a step comes from, and each parameter of the order; print it. By
        default of the epoch in progress."""
        self._check_open()
        epoch = self._epoch if epoch is None else integer("epoch", epoch, 0, EPOCHS_MAX - 1)
        if self._source is None:
            step = integer("step", step, 0, self._steps_per_epoch - 1)
            return self._explanation(epoch, step, self._core.explain(epoch, step))
        if self._plan is None or epoch != self._epoch:
            raise FailedPreconditionError(
                f"explaining epoch {epoch}: its order is the sampler's, known only while it is "
                "iterated"
            )
        step = integer("step", step, 0, len(self._plan.batch_ends) - 1)
        return self._explanation(epoch, step, self._core.explain_rows(self._plan.batch(step)))

    def _explanation(
        self, epoch: int, step: int, rows: list[tuple[int, int, str, str, str, int, int, str]]
    ) -> Explanation:
        core = self._core
        parameters = {}
        for name, value in core.order_parameters.items():
            origin = str(core.order_origins[name])
            if origin == "given" and name not in self._given:
                origin = "from the state"
            parameters[name] = ExplainedParameter(value, origin)
        return Explanation(epoch, step, rows, self._options.order.name, parameters)

    def save_profile(self, path: str | os.PathLike[str]) -> None:
        """Writes the loader's `profile` with what was learned of preprocessing while it ran.

        Given as `profile` to the next run, that begins with it. The file may be the one that was
        read; nothing is written unless asked for here.
        """
        self._check_open()
        check_outside("writing profile", path, image_folder(self.dataset))
        profile_learned(self._profile, self._core).save(path)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes when each of the newest 4,096 batches of a rank was read, decoded, ready and
        waited for, as JSON for https://ui.perfetto.dev."""
        self._check_open()
        check_outside("writing the trace", path, image_folder(self.dataset))
        write_trace(
            Path(given_path("writing the trace", path)),
            self._core.step_times(),
            self._rank - self._core.stats()["lane"],
        )

    def prometheus(self) -> str:
        """``stats()`` in the text format that Prometheus reads."""
        self._check_open()
        return prometheus.expose([({}, self._snapshot())])

    def report(self, path: str | os.PathLike[str]) -> None:
        """Draws the times of batches, who waited when, imbalance, reuse and bytes by source; the
        format is that of the name: ``loader.report("loader.png")``."""
        self._check_open()
        chart = Path(given_path("writing the chart", path))
        check_outside("writing the chart", chart, image_folder(self.dataset))
        plot.check(chart)
        plot.draw(chart, self._observation())

    def _check_open(self) -> None:
        if self._closed:
            native.stop_at_exit()  # A thread that the interpreter leaves behind raises nothing.
            raise FailedPreconditionError("the loader is closed; make another one")

    def _snapshot(self) -> dict[str, Any]:
        """What may leave the process, as JSON."""
        return {
            "version": 1,
            "pid": os.getpid(),
            "rank": self._rank,
            "world_size": self._options.world_size,
            "dataset": str(self.dataset.path),
            "monotonic_ns": time.monotonic_ns(),
            "stats": self.stats(),
        }

    def _observation(self) -> dict[str, Any]:
        """The snapshot with what a report is drawn of."""
        steps = {name: column.tolist() for name, column in self._core.step_times().items()}
        return self._snapshot() | {
            "steps": steps,
            "reuse": self._reuse(),
            "image_folder": image_folder(self.dataset),
        }

    def _reuse(self) -> dict[str, Any] | None:
        """None: not known, as the order is a sampler's; or too much to count now."""
        epochs = min(_REUSE_EPOCHS, self._options.epochs)
        if self._source is not None or len(self.dataset) * epochs > _REUSE_SAMPLES_MAX:
            return None
        try:
            return native.reuse_distances(self.dataset.index, self._options, epochs)
        except HeadraceError:
            return None


def watch(loader: Observed, monitor: bool | None) -> Monitor | None:
    """Answers from other processes, if asked for: by argument, or HEADRACE_MONITOR=1."""
    if monitor is None:
        monitor = os.environ.get("HEADRACE_MONITOR", "0") not in ("", "0")
    if not flag("monitor", monitor):
        return None
    found = weakref.ref(loader)  # Its thread keeps no loader.

    def answer(request: str) -> dict[str, Any]:
        here = found()
        if here is None:
            return {"error": "the loader is gone"}
        return here._snapshot() if request == "stats" else here._observation()

    return Monitor(answer)
