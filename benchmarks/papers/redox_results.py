"""What Redox and its forerunner Brand print beside what the order `redox` counts.

    python benchmarks/papers/redox_results.py [--check]

Writes its part of docs/paper-results.md. Nothing is measured: loads of chunks and requests to other
nodes are counted by the planner, and seconds follow from them by the rules that the page names.
--check: only says whether the page has them. Takes a minute. One row of table 6 by hand:

    headrace order --order redox --samples 1280640 --block-samples 64 --hash --json \\
        --set nodes=3 --set refill=max_fill --set prefetch=5600
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from functools import cache

import _page

from headrace import _core

SAMPLES = 1_280_640  # 3/2 of the remote reads of table 6
NODES = 3
_FILE_BYTES = 135e9 / SAMPLES  # 135 GB of ImageNet-1k
_WINDOWS = (5500, 5600, 5800)
WINDOW = 5600
_WIDE_WINDOW = 8000  # that uses 1.5 GB
_MISS = 1e5
LATENCY_BYTES = 6.7e6  # what storage could give meanwhile; fitted
_CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CLASSES = (64, 32, 16, 8, 4, 2, 1)
_LIMITS_MB = (50, 500, 1000, 1500, 2000, 3000)
_LIMIT_HOURS = (0.77, 0.71, 0.65, 0.63, 0.66, 0.68)

# Table 6: refill, whether with a window; hours, misses and remote requests in 1e5.
ROWS = {
    "Redox": ("max_fill", True, 0.71, 1.26, 0.41),
    "random selection": ("random", True, 0.76, 1.33, 0.46),
    "no prefetching": ("max_fill", False, 0.87, 1.78, 8.54),
    "no optimization": ("random", False, 0.93, 1.91, 8.54),
}
_FITTED = ("Redox", "no optimization")


@cache
def counted(
    chunk: int = 64,
    window: int = 0,
    refill: str = "max_fill",
    *,
    classes: int = 0,
    limit: int = 0,
    share: int = 10,
) -> dict[str, float]:
    """The counters of an epoch; bytes are samples, and `limit` of them are at most sent along."""
    parameters: dict[str, int | str] = {
        "nodes": NODES,
        "chunks_per_virtual": share,
        "prefetch": window,
        "refill": refill,
        "slot_classes": classes,
        "remote_bytes": limit,
    }
    blocks = _core.Blocks.uniform(SAMPLES, chunk)
    stream = _core.OrderStream("redox", parameters, index=blocks, batch_size=256)
    stream.ids(stream.steps_per_epoch)
    return stream.counters()


def row_of(name: str, window: int = WINDOW) -> dict[str, float]:
    """The counters of a row of table 6."""
    refill, looks_ahead, *_ = ROWS[name]
    return counted(64, window if looks_ahead else 0, refill)


def fit() -> tuple[float, float]:
    """Hours of an epoch: a + b x misses / 1e5, through the rows `_FITTED`."""
    (best, misses_best), (worst, misses_worst) = (
        (ROWS[name][2], row_of(name)["misses"] / _MISS) for name in _FITTED
    )
    b = (worst - best) / (misses_worst - misses_best)
    return best - b * misses_best, b


def beside(ours: float, printed: float, digits: int = 2) -> str:
    off = round(ours / printed - 1, 3) + 0.0  # no -0.0
    return f"{ours:.{digits}f} / {printed:.{digits}f} ({off:+.1%})"


def table_6() -> Iterator[str]:
    a, b = fit()
    yield (
        "| row | misses, 1e5 | remote requests, 1e5 | misses with windows of "
        f"{', '.join(f'{window:,}' for window in _WINDOWS)} | hours | |"
    )
    yield "|---|---:|---:|---:|---:|---|"
    for name, (_, looks_ahead, hours, misses, remote) in ROWS.items():
        ours = row_of(name)
        windows = ", ".join(f"{row_of(name, w)['misses'] / _MISS:.3f}" for w in _WINDOWS)
        own = a + b * ours["misses"] / _MISS
        cells = [
            name,
            beside(ours["misses"] / _MISS, misses),
            beside(ours["remote_requests"] / _MISS, remote),
            windows if looks_ahead else "",
            beside(own, hours),
            "fitted" if name in _FITTED else "predicted",
        ]
        yield f"| {' | '.join(cells)} |"
    yield f"| CoorDL | | | | {beside(_with_cache(a), 1.40)} | from PyTorch's; not derivable |"
    yield f"| PyTorch | | | | {beside(_alone(a, b), 1.61)} | not derivable |"


def _with_cache(a: float) -> float:
    """CoorDL, from PyTorch's hours: a quarter is in memory and takes no time."""
    return 1.61 - 0.24 * (1.61 - a)


def _alone(a: float, b: float) -> float:
    """Files alone, from a load of 64 by the rule of figure 6."""
    cost = (LATENCY_BYTES + _FILE_BYTES) / (LATENCY_BYTES + 64 * _FILE_BYTES)
    return a + b * cost * SAMPLES / _MISS


def table_6_notes() -> Iterator[str]:
    a, b = fit()
    per_load = b * 3600 / _MISS
    rate = 64 * _FILE_BYTES / per_load
    yield (
        "- The counts have one parameter that was fitted to the two rows without prefetching, ten "
        "chunks a virtual chunk, and one for the two others, the window."
    )
    yield (
        f"- Hours are {a:.3f} + {b:.3f} x misses / 1e5, fitted to *Redox* and *no optimization* "
        f"alone: {per_load * 1e3:.1f} ms a load, {rate / 1e6:,.0f} MB/s for the three nodes."
    )
    yield (
        f"- PyTorch reads 135 GB in 1.61 h, {135e9 / 1.61 / 3600e6:.1f} MB/s. By the rule that "
        f"gives figure 6 its best chunk, files alone would take {_alone(a, b):.2f} h: its reads "
        "cost less, or more of them go at a time, and the paper says neither."
    )
    yield (
        "- CoorDL keeps 3 x 8 = 24 % in memory: if these took no time, and all others PyTorch's, "
        f"{_with_cache(a):.2f} h. What samples out of another node's memory cost is not printed."
    )
    yield (
        "- **Contradiction.** The paper says 1.2e6 files, of which 2/3 are 8.00e5; it has 8.54e5 "
        f"remote requests. So there are {8.54e5 * 1.5:,.0f}, of {_FILE_BYTES / 1e3:.1f} KB "
        "(table 5: 100)."
    )
    least = counted(share=4)
    with_window = counted(64, WINDOW, share=4)
    yield (
        '- **Contradiction.** "Once loaded, all files in the chunk will be consumed without being '
        f'loaded again" (abstract): table 6 has {1.26e5 / (SAMPLES / 64):.2f} loads a chunk. A '
        "sample *enters memory* once."
    )
    yield (
        '- **Contradiction.** All experiments use "the maximum available memory whenever '
        'possible" (5.2): CoorDL keeps 8 % of the files on a node, 24 % in all. With slots for as '
        f"many there would be four chunks a virtual chunk, and {least['misses'] / _MISS:.2f}e5 "
        f"misses, with the window {with_window['misses'] / _MISS:.2f}e5, for the printed 1.78 and "
        "1.26. Ten, which fit, have slots for 10 %: "
        f"{SAMPLES / 10 / NODES * _FILE_BYTES / 1e9:.1f} GB of a node's 16 GB."
    )


def chunk_costs(window: int, latency: float) -> dict[int, float]:
    """Of chunks of so many samples: loads over the rate, as bytes of the best rate a byte used."""
    return {
        chunk: loads(chunk, window) * (1 + latency / (chunk * _FILE_BYTES)) for chunk in _CHUNKS
    }


def loads(chunk: int, window: int) -> float:
    """Of a chunk and epoch. A file alone is read once."""
    return 1.0 if chunk == 1 else counted(chunk, window)["loads_per_chunk"]


def latencies_with_best(chunk: int, window: int) -> tuple[float, float]:
    """The least and the most LATENCY_BYTES with which this chunk costs least."""
    own, low, high = loads(chunk, window), 0.0, math.inf
    for other in _CHUNKS:
        if other == chunk:
            continue
        # loads x (1 + latency / bytes) are equal at this latency.
        gap = loads(other, window) - own
        slope = own / (chunk * _FILE_BYTES) - loads(other, window) / (other * _FILE_BYTES)
        at = gap / slope
        low, high = (max(low, at), high) if other < chunk else (low, min(high, at))
    return low, high


def figure_6() -> Iterator[str]:
    yield (
        "| samples a chunk | loads a chunk | with the window | share of the best rate | "
        "time, over that of a file alone | with the window |"
    )
    yield "|---|" + "---:|" * 5
    costs = [chunk_costs(window, LATENCY_BYTES) for window in (0, WINDOW)]
    for chunk in _CHUNKS:
        share = 1 / (1 + LATENCY_BYTES / (chunk * _FILE_BYTES))
        cells = [f"{chunk}", f"{loads(chunk, 0):.2f}", f"{loads(chunk, WINDOW):.2f}"]
        cells += [f"{share:.3f}"] + [f"{cost[chunk] / cost[1]:.3f}" for cost in costs]
        yield f"| {' | '.join(cells)} |"


def figure_6_notes() -> Iterator[str]:
    low, high = latencies_with_best(64, 0)
    low_ahead, high_ahead = latencies_with_best(64, WINDOW)
    yield (
        "- The figure prints no numbers but the best chunk, 64, and that its rate rises "
        'throughout. Loads are counted: ten chunks a virtual chunk. "With chunk size 1" is PyTorch.'
    )
    yield (
        "- Times have one fitted parameter, latency x bandwidth: a read takes as long as "
        f"{LATENCY_BYTES / 1e6:.1f} MB more at the best rate. With "
        f"{low / 1e6:.1f} to {high / 1e6:.1f} MB chunks of 64 take least, with the window "
        f"{low_ahead / 1e6:.1f} to {high_ahead / 1e6:.1f} MB."
    )
    classes = ", ".join(f"{counted(classes=n)['loads_per_chunk']:.2f}" for n in _CLASSES)
    yield (
        "- Not in the papers: with positions of a chunk in "
        f"{', '.join(map(str, _CLASSES))} classes (`slot_classes`) it takes {classes} loads."
    )


def figure_5() -> Iterator[str]:
    a, b = _limit_fit()
    yield (
        "| limit | hours | used, GB, window of 5,600 | misses, 1e5 | remote requests, 1e5 | "
        f"used, GB, window of {_WIDE_WINDOW:,} |"
    )
    yield "|---|" + "---:|" * 5
    for megabytes, hours in zip(_LIMITS_MB, _LIMIT_HOURS, strict=True):
        ours, wide = (_limited(megabytes, window) for window in (WINDOW, _WIDE_WINDOW))
        own = beside(a + b * ours["misses"] / _MISS, hours)
        cells = [
            f"{megabytes:,} MB",
            own + (" fitted" if megabytes == 1500 else ""),
            f"{_used(ours):.2f}",
            f"{ours['misses'] / _MISS:.3f}",
            f"{ours['remote_requests'] / _MISS:.3f}",
            f"{_used(wide):.2f}",
        ]
        yield f"| {' | '.join(cells)} |"


def _limited(megabytes: int, window: int) -> dict[str, float]:
    return counted(64, window, limit=round(megabytes * 1e6 / _FILE_BYTES))


def _limit_fit() -> tuple[float, float]:
    """Of SqueezeNet: table 6's hours a miss; its own constant, from the limit of 1.5 GB."""
    _, b = fit()
    return 0.63 - b * _limited(1500, WINDOW)["misses"] / _MISS, b


def _used(counters: dict[str, float]) -> float:
    return counters["peak_remote_bytes"] * _FILE_BYTES / 1e9


def figure_5_notes() -> Iterator[str]:
    ours, wide = (counted(64, window) for window in (WINDOW, _WIDE_WINDOW))
    yield (
        "- Hours: a miss costs what it costs in table 6; one constant, of SqueezeNet, is fitted to "
        "1.5 GB. That more than 1.5 GB takes longer does not follow from counts."
    )
    yield (
        f"- **Contradiction.** With the window that fits table 6, {_used(ours):.2f} GB are used at "
        f"most ({ours['peak_remote_bytes']:,.0f} samples of {_FILE_BYTES / 1e3:.1f} KB); the text "
        f"says 1.5. A window of {_WIDE_WINDOW:,} uses {_used(wide):.2f} GB, but has "
        f"{wide['misses'] / _MISS:.3f}e5 misses ({wide['misses'] / 1.26e5 - 1:+.0%}) and "
        f"{wide['remote_requests'] / _MISS:.3f}e5 remote requests "
        f"({wide['remote_requests'] / 0.41e5 - 1:+.0%}). Table 6 is of ResNet50, figure 5 of "
        "SqueezeNet; counts do not depend on the model."
    )


def table_1() -> Iterator[str]:
    yield "| model | hours | of these I/O | share, ours / printed | most that any loader gains |"
    yield "|---|---:|---:|---:|---:|"
    for model, hours, io_hours, printed in (
        ("SqueezeNet", 1.40, 1.27, 91),
        ("MobileNetV3", 1.53, 1.25, 82),
        ("ResNet50", 1.65, 1.07, 65),
    ):
        share = f"{io_hours / hours:.1%} / {printed} %".replace("%", " %", 1)
        gain = f"{hours / (hours - io_hours):.1f} x"
        yield f"| {model} | {hours:.2f} | {io_hours:.2f} | {share} | {gain} |"


# Where: machines, CoorDL's share of the data on each, GB of data and of memory; Redox over PyTorch
# and over CoorDL, which are of the best model each; the share of all nodes as printed.
_SPEEDUPS = (
    ("figure 2: LibriSpeech, 1 A10", 1, 16, 60, 16, 1.77, 1.64, ""),
    ("figure 2: LibriSpeech, 5 A10", 5, 16, 60, 16, 2.18, 1.46, ""),
    ("figure 3: ImageNet-21k, 2 A100", 2, 15, 1100, 256, 2.37, 1.73, ""),
    ("figure 3: ImageNet-21k, 3 A100", 3, 15, 1100, 256, 2.41, 1.70, ""),
    ("figure 4: ImageNet-1k, 3 A10", 3, 8, 135, 16, 2.26, 1.96, "25 %"),
    ("figure 4: ImageNet-1k, 5 A10", 5, 8, 135, 16, 2.47, 1.69, "40 %"),
    ("figure 4: ImageNet-1k, 1 P100", 1, 35, 135, 60, 2.13, 1.45, ""),
    ("figure 4: ImageNet-1k, 3 P100", 3, 35, 135, 60, 4.57, 1.32, "all"),
)


def speedups() -> Iterator[str]:
    yield (
        "| where | Redox over PyTorch, CoorDL, printed | so CoorDL over PyTorch | its most by what "
        "it caches | a node caches, of its memory | all nodes, ours / printed |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for where, nodes, share, data, memory, torch, coordl, printed in _SPEEDUPS:
        cached = nodes * share
        most = f"{1 / (1 - cached / 100):.2f}" if cached < 100 else "no limit"
        of_node = f"{share * data / 100:.1f} of {memory} GB"
        shares = f"{nodes} x {share} = {cached} % / {printed or 'not printed'}"
        factors = f"{torch:.2f}, {coordl:.2f} | {torch / coordl:.2f}"
        yield f"| {where} | {factors} | {most} | {of_node} | {shares} |"


def speedup_notes() -> Iterator[str]:
    yield (
        "- Hours of figures 2 to 4 are not reproducible here, because they need their GPUs, and "
        "the rates of their storage are not printed. `python benchmarks/nodes/side_by_side.py` "
        "measures the like at a smaller scale ([side-by-side.md](side-by-side.md)). CoorDL can "
        "gain no more than by what it does not read; the printed factors, each of its best model, "
        "keep to that."
    )
    yield (
        f"- Table 6 has the factors of three A10: {1.61 / 0.71:.2f} and {1.40 / 0.71:.2f} for the "
        "2.26 and 1.96 of figure 4."
    )
    yield (
        f"- Table 5: 60 GB of 2.8e5 files are {60e9 / 2.8e5 / 1e3:.0f} KB a file (printed: 200), "
        f"135 GB of 1.2e6 {135e9 / 1.2e6 / 1e3:.1f} (100), 1.1 TB of 1.3e7 "
        f"{1.1e12 / 1.3e7 / 1e3:.1f} (100). Of table 4 only the numbers of nodes and their memory "
        "are used here, not networks of 0.38, 0.38 and 3 GB/s."
    )
    tops = (75.60, 75.65, 75.61, 75.63)
    yield (
        "- Figure 7 and table 7 (ResNet50: 75.63 at epoch 83 with Redox, 75.61 at epoch 89 with "
        f"PyTorch; with less memory {', '.join(f'{top:.2f}' for top in tops)}, a range of "
        f"{max(tops) - min(tops):.2f} points): not reproducible here, because they need 90 epochs "
        "of ImageNet-1k on two P100. [convergence.md](convergence.md) has `redox` with 2 to 20 "
        "chunks a virtual chunk on small data, over 20 seeds."
    )


def log10_factorial(n: int) -> float:
    return math.lgamma(n + 1) / math.log(10)


def theorem_2() -> Iterator[str]:
    for chunk, share in ((64, 10),):
        all_orders = log10_factorial(chunk * share)
        each = chunk * log10_factorial(share)
        yield (
            f"- K = {chunk}, S = {share}: (KS)! = 10^{all_orders:.1f} orders of a virtual chunk's "
            f"files become (KS)!/(S!)^K = 10^{all_orders - each:.1f}. With ties to the first chunk "
            "this is exact, not a bound, and all are equally likely (`redox_papers_test`); random "
            "ties reach more. Brand's proof of a random order contradicts Redox's theorem 1."
        )


def verdicts() -> Sequence[tuple[str, bool]]:
    """What must hold, and whether it does."""
    found = []
    for name, (_, looks_ahead, hours, misses, remote) in ROWS.items():
        most = 0.08 if looks_ahead else 0.02
        ours = row_of(name)
        for what, printed in (("misses", misses), ("remote_requests", remote)):
            holds = abs(ours[what] / _MISS / printed - 1) <= most
            found.append((f"{name}: {what} within {most:.0%}", holds))
        a, b = fit()
        holds = abs((a + b * ours["misses"] / _MISS) / hours - 1) <= 0.04
        found.append((f"{name}: hours within 4%", holds))
    return found


def tables() -> str:
    parts = {
        "Redox, table 6 (Brand, tables 4 and 5): ours / printed; counts with a window of 5,600": (
            [*table_6(), "", *table_6_notes()]
        ),
        "Redox, figure 6 (Brand, figures 13 and 14): what chunks of other sizes cost": (
            [*figure_6(), "", *figure_6_notes()]
        ),
        "Redox, figure 5 and section 5.4 (Brand, table 6): the limit of remote memory": (
            [*figure_5(), "", *figure_5_notes()]
        ),
        "Redox, table 1: three P100, ImageNet-1k, PyTorch; hours not reproducible here": table_1(),
        "Redox, section 5.2 and figures 2 to 4 (Brand, figures 9 to 11), tables 4, 5 and 7": (
            [*speedups(), "", *speedup_notes()]
        ),
        "Redox, theorem 2": theorem_2(),
    }
    fallen = [what for what, holds in verdicts() if not holds]
    if fallen:
        raise SystemExit(f"does not hold: {'; '.join(fallen)}")
    return _page.joined(parts)


if __name__ == "__main__":
    sys.exit(_page.run("redox_results", __doc__, tables))
