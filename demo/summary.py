"""Figures of a loader from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from records import TITLES, Kind, Run


@dataclass(frozen=True)
class Summary:
    """All runs of one loader together."""

    title: str
    samples_per_second: float  # samples over seconds, of all runs
    samples_per_second_runs: tuple[float, ...]
    device_mb_per_second: float | None  # None: the system does not tell
    device_share: float | None  # bytes from the device over bytes of the dataset, an epoch
    stall_share: float  # seconds in next() over seconds
    stall_causes: dict[str, float]  # of the stall, by share
    causes_are: str  # "waited", or "workers": how the time of torch's workers divides
    memory_peak: int  # bytes, largest of all runs
    memory_of_loader: int  # that, less what the process had before the loader
    loss: tuple[float, ...]  # a run's mean over each epoch, mean over runs
    accuracy: tuple[float, ...]
    each_sample_once: bool  # in every epoch of every run
    resident_share: float  # of the dataset in the page cache when an epoch began, at most
    store: str


def summarize(runs: Sequence[Run], dataset_bytes: int) -> dict[Kind, Summary]:
    """By loader, in the order of the table."""
    return {
        kind: _summary([run for run in runs if run.kind == kind], dataset_bytes)
        for kind in TITLES
        if any(run.kind == kind for run in runs)
    }


def _summary(runs: list[Run], dataset_bytes: int) -> Summary:
    seconds = sum(run.seconds for run in runs)
    waited = sum(run.wait_seconds for run in runs)
    counted = [run.device_bytes for run in runs if run.device_bytes is not None]
    device_bytes = sum(counted) if len(counted) == len(runs) else None
    epochs = [epoch for run in runs for epoch in run.epochs]
    peak = max(runs, key=lambda run: run.memory_peak)
    by_epoch = list(zip(*(run.epochs for run in runs), strict=True))
    return Summary(
        title=TITLES[runs[0].kind],
        samples_per_second=sum(run.samples for run in runs) / seconds,
        samples_per_second_runs=tuple(run.samples_per_second for run in runs),
        device_mb_per_second=None if device_bytes is None else device_bytes / 1e6 / seconds,
        device_share=(
            None if device_bytes is None else device_bytes / (dataset_bytes * len(epochs))
        ),
        stall_share=waited / seconds,
        stall_causes=cause_shares(runs, waited),
        causes_are=runs[0].causes_are,
        memory_peak=peak.memory_peak,
        memory_of_loader=peak.memory_peak - peak.memory_before,
        loss=tuple(sum(e.loss for e in same) / len(same) for same in by_epoch),
        accuracy=tuple(sum(e.accuracy for e in same) / len(same) for same in by_epoch),
        each_sample_once=all(epoch.once for epoch in epochs),
        resident_share=max(epoch.resident_bytes for epoch in epochs) / dataset_bytes,
        store=runs[0].store,
    )


def cause_shares(runs: list[Run], waited: float) -> dict[str, float]:
    """Shares of the stall. What a loader attributes to nothing is its start and end."""
    seconds: dict[str, float] = {}
    for run in runs:
        for cause, value in run.causes.items():
            seconds[cause] = seconds.get(cause, 0.0) + value
    attributed = sum(seconds.values())
    if runs[0].causes_are == "waited":
        seconds["start"] = max(0.0, waited - attributed)
        attributed += seconds["start"]
    return {cause: value / attributed if attributed else 0.0 for cause, value in seconds.items()}


def io_share(summaries: dict[Kind, Summary], kind: Kind) -> float:
    """Share of a loader's time that goes once no byte has to be read."""
    return 1 - summaries[kind].samples_per_second / summaries["synthetic"].samples_per_second


def to_json(summaries: dict[Kind, Summary]) -> dict[str, object]:
    """With the I/O share of each loader."""
    return {
        kind: asdict(summary) | {"io_share": io_share(summaries, kind)}
        for kind, summary in summaries.items()
    }
