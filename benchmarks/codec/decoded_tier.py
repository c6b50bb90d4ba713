"""What a tier that holds images decoded gains over one that holds them as stored.

    python benchmarks/codec/decoded_tier.py [--rounds 7] [--threads 2] [--data FOLDER]

Images a second with `hr.image.train(224)`, all samples in the tier: of the first epoch, which fills
it, and of the epochs after it. Runs are processes of their own, in pairs, in turn.

Discard rule, fixed beforehand: a pair while which the host took more than 5 % of the processors is
repeated, twice as often at most as asked for.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness

import headrace as hr

_FORMS = ("stored", "decoded")
_BATCH = 64
_STEAL_MAX = 0.05
_BYTES = 150_000_000  # of images on storage


def _load(folder: Path, form: Any, threads: int, epochs: int) -> dict[str, Any]:
    dataset = hr.open(folder)
    begin = time.perf_counter()
    tiers = hr.tiers.Ram("3GB", form=form)
    loader = hr.Loader(
        dataset,
        _BATCH,
        transform=hr.image.train(224),
        tiers=tiers,
        memory="4GB",
        threads=threads,
        output="numpy",
        epochs=epochs,
    )
    made = time.perf_counter()
    rates = []
    with loader:
        for _ in range(epochs):
            begin_epoch = time.perf_counter()
            images = sum(len(image) for image, _ in loader)
            rates.append(images / (time.perf_counter() - begin_epoch))
        (tier,) = loader.stats()["tiers"]
    later = sorted(rates[1:])
    return {
        "made_s": made - begin,
        "first": rates[0],
        "later": later[len(later) // 2],
        "images": images,
        "tier_bytes": tier["used"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2, help="that decode")
    arguments = parser.parse_args()
    data = _data.image_data(arguments.data, _BYTES)
    files = [path for path in data.folder.rglob("*") if path.is_file()]
    pairs: list[dict[str, dict[str, Any]]] = []
    discarded = 0
    while len(pairs) < arguments.rounds and discarded < 2 * arguments.rounds:
        _harness.make_warm(files)
        steal = _harness.steal_share()
        pair = {
            form: _harness.in_child(_load, data.folder, form, arguments.threads, arguments.epochs)
            for form in random.sample(_FORMS, len(_FORMS))
        }
        if steal() > _STEAL_MAX:
            discarded += 1
            continue
        pairs.append(pair)
        print({form: {k: round(v, 2) for k, v in run.items()} for form, run in pair.items()})
    if not pairs:
        raise SystemExit("every pair was discarded: the machine is too busy to measure on")
    ratios = {
        name: _harness.median_and_interval(
            [pair["decoded"][name] / pair["stored"][name] for pair in pairs]
        )
        for name in ("first", "later", "tier_bytes")
    }
    for name, (middle, low, high) in ratios.items():
        print(f"{name}: decoded / stored {middle:.2f} [{low:.2f}, {high:.2f}]")
    _harness.record("decoded_tier", {"ratios": ratios, "discarded": discarded, "pairs": pairs})


if __name__ == "__main__":
    main()
