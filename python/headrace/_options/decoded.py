"""Tiers that hold images decoded: which loaders can have them, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace import _core
from headrace._dataset import Dataset
from headrace._dataset.image_sizes import image_sizes
from headrace.errors import InvalidArgumentError
from headrace.tiers import CoreTier

_FORM = "tiers: form='decoded'"


def decoded_images(
    dataset: Dataset, tiers: Sequence[CoreTier], order: str, fields: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The members of the core's tiers that say what they hold decoded. `fields`: of the core.

    Reads the first bytes of each image, once for a dataset.

    Raises:
        InvalidArgumentError: a loader that cannot have such a tier.
    """
    if len(tiers) != 1 or tiers[0].path:
        raise InvalidArgumentError(
            f"{_FORM} beside other tiers: one in memory is all that a loader has then; give "
            "tiers=headrace.tiers.Ram(capacity, form='decoded') alone, or leave form out"
        )
    if _core.find_order(order).reads_blocks:
        raise InvalidArgumentError(
            f"{_FORM} with order={order!r}: samples pass through its pool as they are stored; use "
            "order='exact' or 'batch', or leave form out"
        )
    images = [field for field in fields if isinstance(field.get("image"), _core.ImageTransform)]
    if len(images) != 1:
        raise InvalidArgumentError(
            f"{_FORM}: {len(images)} fields have a transform of headrace.image, must be one, whose "
            "pixels are kept; what a Python function decodes is not: leave form out"
        )
    name, transform = images[0]["name"], images[0]["image"]
    if _coding_of(dataset, name) != "stored":
        raise InvalidArgumentError(
            f"{_FORM}: the images of field {name!r} are compressed once more, so their first bytes "
            "do not say their sizes; leave form out"
        )
    sizes = image_sizes(dataset, name)
    return {
        "decoded_field": name,
        "decoded_images": _core.form_bytes(sizes.widths, sizes.heights, transform),
    }


def refuse_nodes(options: _core.LoaderOptions) -> None:
    """Raises for a loader whose node and others give each other samples."""
    if options.decoded_field:
        raise InvalidArgumentError(
            f"{_FORM} on several nodes: what these send each other is as stored; give "
            "Job(node=False), so that each rank reads storage itself, or leave form out"
        )


def _coding_of(dataset: Dataset, name: str) -> str:
    return next(field.coding for field in dataset.index.fields if field.name == name)
