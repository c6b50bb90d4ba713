"""Photos to crops of 224 x 224 by torchvision, in `headrace.torch.DataLoader` and in torch's.

    PYTHONPATH=$(python tools/package_env.py torchvision-cuda) python benchmarks/map_style/images.py

JPEG files of 500 x 375 in the page cache, read by torchvision's `ImageFolder` with Pillow, or with
`decode_image` to tensors; RandomResizedCrop and a flip in Python; two processes, batches of 64,
which both loaders make of the same samples. Rates are of a whole epoch, with the start of its
workers. Loaders take turns; ratios are of one round, their median is the figure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import torch.utils.data
from map_style import ratio, run
from PIL import Image

from headrace.torch import DataLoader

COUNT, BATCH = 4096, 64


def write(folder: Path) -> None:
    """Files of 1,024 pictures, each file in a class of its own: a sample's label is its number."""
    prng = np.random.default_rng(0)
    low = prng.integers(0, 256, (1024, 12, 16, 3), np.uint8)
    for number in range(COUNT):
        path = folder / f"{number:05}" / "photo.jpg"
        path.parent.mkdir()
        image = Image.fromarray(low[number % 1024]).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(path, quality=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    from torchvision.datasets import ImageFolder
    from torchvision.io import decode_image, read_file
    from torchvision.transforms import v2

    after = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    transforms = {
        "Pillow": ({}, v2.Compose([*after, v2.PILToTensor()])),
        "tensors": ({"loader": lambda path: decode_image(read_file(path))}, v2.Compose(after)),
    }
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for name, (how, transform) in transforms.items():
            data = ImageFolder(folder, transform, **how)
            runs: dict[str, list[dict[str, float]]] = {"torch": [], "headrace": []}
            kinds: dict[str, Any] = {"torch": torch.utils.data.DataLoader, "headrace": DataLoader}
            for turn in range(rounds):
                for label in list(kinds) if turn % 2 == 0 else list(reversed(kinds)):
                    runs[label].append(run(partial(kinds[label], data, BATCH, num_workers=2)))
            rates = ratio(runs["headrace"], runs["torch"], "epoch_samples_s")
            cpu = {of: median(one["cpu_ms_a_sample"] for one in rows) for of, rows in runs.items()}
            print(
                f"{name}: {rates:.2f} x torch's rate; CPU {cpu['headrace']:.2f} ms a sample, "
                f"torch's {cpu['torch']:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
