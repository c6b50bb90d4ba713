"""Figures of a loader from its runs, and what they say about two loaders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from records import EPOCHS_MIN, TITLES, CoreTime, Kind, Run


@dataclass(frozen=True)
class Summary:
    """One loader. Rates and times are those of its median run, so that all of them agree."""

    title: str
    median_round: int
    samples_per_second: float
    samples_per_second_runs: tuple[float, ...]  # by round
    device_mb_per_second: float | None  # None: the system does not tell
    stall_share: float  # seconds in next() over seconds
    stall_causes: dict[str, float]  # of the stall, by share
    causes_are: str  # "waited", or "workers": how the time of torch's workers divides
    memory_peak: int  # bytes, largest of all runs
    memory_of_loader: int  # that, less what the process had before the loader
    epochs: int  # of a run
    loss: float  # mean over epoch EPOCHS_MIN, mean over runs
    loss_first: float  # over the first epoch
    accuracy: float  # as `loss`
    each_sample_once: bool  # in every epoch of every run
    resident_share: float  # of the dataset in the page cache when an epoch began, at most


@dataclass(frozen=True)
class Figures:
    """All that the table and the chart show."""

    loaders: dict[Kind, Summary]  # in the order of the table
    bound: float  # samples/s that no storage can pass
    others_cpu_share: tuple[float, float]  # of all cores, taken by other processes: least, most

    def share_of_bound(self, kind: Kind) -> float:
        """Of a loader's median run."""
        return self.loaders[kind].samples_per_second / self.bound

    def ratios(self, kind: Kind, other: Kind) -> list[float]:
        """How many times the rate of `other`, by round."""
        pairs = zip(
            self.loaders[kind].samples_per_second_runs,
            self.loaders[other].samples_per_second_runs,
            strict=True,
        )
        return [rate / other_rate for rate, other_rate in pairs]


def figures(runs: Sequence[Run], dataset_bytes: int, cores: int) -> Figures:
    """Of all runs of the demo."""
    shares = [run.others_cpu_share for run in runs]
    return Figures(
        loaders={
            kind: _summary([run for run in runs if run.kind == kind], dataset_bytes)
            for kind in TITLES
        },
        bound=bound([run.core_time for run in runs], cores),
        others_cpu_share=(min(shares), max(shares)),
    )


def bound(measured: Sequence[CoreTime], cores: int) -> float:
    """Samples/s if training and decoding shared the cores without any loss, at their fastest."""
    training = min(each.training for each in measured)
    decoding = min(each.decoding for each in measured)
    # Training has one main thread, so it takes at least its time, however many cores decode.
    return 1 / max(training, (training + decoding) / cores)


def median_run(runs: Sequence[Run]) -> Run:
    """By rate; of an even number the slower of the two in the middle."""
    return sorted(runs, key=lambda run: run.samples_per_second)[(len(runs) - 1) // 2]


def _summary(runs: Sequence[Run], dataset_bytes: int) -> Summary:
    runs = sorted(runs, key=lambda run: run.round)
    median = median_run(runs)
    epochs = [epoch for run in runs for epoch in run.epochs]
    compared = [run.epochs[EPOCHS_MIN - 1] for run in runs]
    peak = max(runs, key=lambda run: run.memory_peak)
    device = median.device_bytes
    return Summary(
        title=TITLES[median.kind],
        median_round=median.round,
        samples_per_second=median.samples_per_second,
        samples_per_second_runs=tuple(run.samples_per_second for run in runs),
        device_mb_per_second=None if device is None else device / 1e6 / median.seconds,
        stall_share=median.wait_seconds / median.seconds,
        stall_causes=cause_shares(median),
        causes_are=median.causes_are,
        memory_peak=peak.memory_peak,
        memory_of_loader=peak.memory_peak - peak.memory_before,
        epochs=len(median.epochs),
        loss=sum(epoch.loss for epoch in compared) / len(runs),
        loss_first=sum(run.epochs[0].loss for run in runs) / len(runs),
        accuracy=sum(epoch.accuracy for epoch in compared) / len(runs),
        each_sample_once=all(epoch.once for epoch in epochs),
        resident_share=max(epoch.resident_bytes for epoch in epochs) / dataset_bytes,
    )


def cause_shares(run: Run) -> dict[str, float]:
    """Shares of the stall. What a loader attributes to nothing is its start and end."""
    seconds = dict(run.causes)
    if run.causes_are == "waited":
        seconds["start"] = max(0.0, run.wait_seconds - sum(seconds.values()))
    attributed = sum(seconds.values())
    return {cause: value / attributed if attributed else 0.0 for cause, value in seconds.items()}


def compare(found: Figures, kind: Kind, other: Kind) -> str:
    """One sentence: faster, slower, or no difference measured."""
    ratios = found.ratios(kind, other)
    least, most = min(ratios), max(ratios)
    title, other_title = TITLES[kind], TITLES[other]
    spread = f"{least:.2f} to {most:.2f}"
    if len(ratios) == 1:
        return f"{title}: {least:.2f} times the rate of {other_title} (one round: no spread known)."
    if least <= 1 <= most:
        return f"{title} and {other_title}: no difference measured ({spread} times, by round)."
    word = "faster" if least > 1 else "slower"
    return f"{title}: {word} than {other_title} in every round, {spread} times its rate."


def to_json(found: Figures) -> dict[str, object]:
    """With the share of the bound of each loader."""
    return {
        kind: asdict(summary) | {"share_of_bound": found.share_of_bound(kind)}
        for kind, summary in found.loaders.items()
    }
