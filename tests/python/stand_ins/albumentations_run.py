"""Loaders with transforms of Albumentations, the real package; prints what they give as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

import headrace as hr


def main(packages: str, folder: str) -> dict[str, Any]:
    sys.path.append(packages)  # Behind .venv: only what that lacks. Workers have it, too.
    warnings.simplefilter("ignore")
    import albumentations as album

    crop = album.CenterCrop(8, 8)
    kept = album.Compose([crop, album.Normalize(mean=0, std=1, max_pixel_value=255)])
    drawn = album.Compose([crop, album.RandomBrightnessContrast(p=1)])
    found: dict[str, Any] = {"changed": []}
    for workers, start in ((0, "fork"), (2, "fork"), (1, "spawn")):
        options: dict[str, Any] = {"workers": hr.Workers(workers, start=start), "output": "numpy"}
        with hr.Loader(folder, 10, transform=drawn, **options) as loader:
            found["changed"].append([batch.image.tolist() for batch in loader])
    options = {"workers": 0, "output": hr.Output("numpy", ids=True)}
    with hr.Loader(folder, 10, transform=kept, **options) as loader:
        batches = list(loader)
    images = np.concatenate([batch.image for batch in batches])
    found |= {
        "fields": batches[0]._fields,
        "shape": images.shape,
        "greys": (images[:, 0, 0, 0] * 255).round().astype(int).tolist(),
        "ids": np.concatenate([batch.sample_id for batch in batches]).tolist(),
        "labels": np.concatenate([batch.label for batch in batches]).tolist(),
    }
    first = hr.image.resize(8, dtype="uint8")  # Channels first; Albumentations takes them last.
    with hr.Loader(folder, 10, transform=(first, album.HorizontalFlip(p=1)), **options) as loader:
        pair = next(iter(loader))
    found["pair"] = [pair.image.shape, pair.image[:, 0, 0, 0].tolist(), pair.sample_id.tolist()]
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
