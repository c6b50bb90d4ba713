"""The arguments of `Loader` that concern its dataset, and the warnings about it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace._arguments import items, shown
from headrace._dataset import Dataset, let_go, open_dataset, open_object
from headrace._dataset.decoding import pillow_is_installed
from headrace._loading.sampling import gives_one_epoch
from headrace._units import format_bytes
from headrace._workers._options import FieldTransform, Native, check_was_made
from headrace._workers._output import SAMPLE_ID
from headrace.audio import AudioTransform
from headrace.errors import InvalidArgumentError
from headrace.formats._base.findings import callers_level, warn_of
from headrace.formats._fields.order import Role, field_types, is_mask, is_sound, roles
from headrace.image import ImageTransform
from headrace.orders import Order

if TYPE_CHECKING:
    from headrace._nodes.process import NodePlace
    from headrace._workers import Core
    from headrace._workers._options import WorkerOptions


def warn_of_data(
    dataset: Dataset,
    core: Core,
    options: _core.LoaderOptions,
    python: WorkerOptions | None,
    fields: Iterable[str] | None,
    kinds: Iterable[str],
) -> None:
    """Warns of faults of the dataset that are known before it is read. `kinds`: the fields of
    batches."""
    _warn_of_unused_tiers(dataset, options, kinds)
    order = None if fields is not None else swapped_fields(dataset)
    if order is not None:
        warnings.warn(f"headrace: {order}", RuntimeWarning, stacklevel=callers_level())
    alike = alike_labels(options.order.name, core.expected_inflation)
    if alike is not None:
        warnings.warn(f"headrace: {alike}", RuntimeWarning, stacklevel=callers_level())
    _warn_of_failing_files(dataset, core, options.on_error, python)


def _warn_of_unused_tiers(
    dataset: Dataset, options: _core.LoaderOptions, kinds: Iterable[str]
) -> None:
    stored = {field.name for field in dataset.index.fields if not field.is_inline}
    if options.tier_count and stored.isdisjoint(kinds):
        names = ", ".join(map(repr, kinds))
        warnings.warn(
            f"headrace: tiers= has no effect: {names} of {dataset.path} lie in the index, which is "
            "in memory, so nothing is read that tiers could keep; leave tiers= out",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def swapped_fields(dataset: Dataset) -> str | None:
    """A warning if a loop over data and labels would get labels and data; else None."""
    fields, row = field_types(dataset.index.fields, dataset.nesting), dataset.format_row
    if len(fields) != 2 or not row.comes_with_headrace or row.chose_fields(dataset.index):
        return None
    first, second = fields
    of_first, of_second = roles(fields)
    is_data = of_second is Role.MEDIA or (of_second is Role.VALUES and second.kind == "array")
    if of_first is not Role.LABEL or not is_data:
        return None
    return (
        f"a batch of {dataset.path} has {first.name!r} first, then {second.name!r}, as the data "
        "have them: for the other order, as a loop over images and labels has it, give the loader "
        f"output=hr.Output(fields=({second.name!r}, {first.name!r})); to keep this one, "
        f"output=hr.Output(fields=({first.name!r}, {second.name!r}))"
    )


_encoded_warned: set[str] = set()


def tell_of_encoded(dataset: Dataset, kinds: Mapping[str, str]) -> None:
    """Says once, for each dataset and process, that batches hold images as they are stored."""
    images = [repr(name) for name, kind in kinds.items() if kind == "image"]
    if not images or dataset.path in _encoded_warned:
        return
    _encoded_warned.add(dataset.path)
    with suppress(RuntimeWarning):  # It may be what is wanted: no error where warnings are errors.
        warnings.warn(
            f"headrace: a batch of {dataset.path} has {' and '.join(images)} as stored, a list of "
            "encoded images, as the loader has no transform; for pixels give it "
            "transform=headrace.image.train(224), another of headrace.image, or a Python function",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def alike_labels(order: str, expected: dict[str, float | None] | None) -> str | None:
    """A warning if batches will hold more equal labels than with a perfect shuffle; else None."""
    inflation = expected["of_labels"] if expected is not None else None
    if expected is None or inflation is None or inflation <= _core.good_label_inflation:
        return None
    return (
        f"order={order!r} will make the mix of labels vary {inflation:.2f} "
        "times as much from batch to batch as a perfect shuffle does (up to "
        f"{_core.good_label_inflation} is harmless): labels inside a block are alike (correlation "
        f"{expected['correlation']:.2f}), and {expected['sharing']:.2%} more pairs of a batch "
        "share a block than by chance. Shuffle the dataset once (headrace pack), raise the order's "
        "pool= (with memory=, if explain() says that this limits it), or lower its "
        "block_samples=; 'headrace order' measures it"
    )


def warn_of_held_batches(core: Core) -> None:
    stats = core.stats()
    short = stats["engine"]["batch"]
    if (workers := stats.get("workers")) and workers["memory"]["beyond_bytes_peak"]:
        short = workers["memory"]
    budget = short["capacity_bytes"]
    warnings.warn(
        f"headrace: {format_bytes(budget)} of memory for batches are not enough: batches "
        "that are still referenced hold them, or a batch takes more; further ones take memory "
        "beyond the budget (stats()['memory']['beyond']): drop batches when done with them, or "
        "raise memory=",
        RuntimeWarning,
        stacklevel=5,
    )


def tiers_in_trouble(core: Core, warned: set[str]) -> None:
    """Warns of tiers that failed, once for each tier."""
    for name, reason in core.tiers_in_trouble():
        if name in warned:
            continue
        warned.add(name)
        warnings.warn(
            f"headrace: tier {name} failed, what it would hold comes from storage: {reason}",
            RuntimeWarning,
            stacklevel=5,
        )


def _warn_of_failing_files(
    dataset: Dataset, core: Core, on_error: _core.OnError, python: WorkerOptions | None
) -> None:
    """Warns of files, found when the dataset was indexed, that will end an epoch with an error."""
    images = [ragged for name, *_, ragged in core.schema if dataset.kind(name) == "image"]
    if on_error is _core.OnError.SUBSTITUTE or not images:
        return
    by_pillow = python is not None and pillow_is_installed()
    decoded = not all(images) or (python is not None and python.decoded and not by_pillow)
    failing = [
        finding
        for finding in dataset.report
        if not finding.has_bytes or (decoded and not finding.can_be_decoded)
    ]
    warn_of(failing, dataset.index, dataset.path, "reading")


def opened(dataset: Any) -> Dataset:
    if isinstance(dataset, Dataset):
        let_go(dataset)  # What its `read` keeps is not in the loader's memory=.
        return dataset
    if isinstance(dataset, (str, os.PathLike)):
        return open_dataset(dataset)
    from_object = open_object(dataset)
    if from_object is None:
        raise InvalidArgumentError(
            f"dataset: got {shown(dataset)}, must be what headrace.open() returns, or a path"
            + _of_python(dataset)
        )
    return from_object


def _of_python(dataset: Any) -> str:
    """What to do with a dataset that is Python code, or what is made of one; else empty."""
    kind = type(dataset)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.DataLoader):
        return (
            ": this is torch's DataLoader: give its dataset's path, or change its import to `from "
            "headrace.torch import DataLoader` (`headrace docs dataloader`)"
        )
    if torch is not None and isinstance(dataset, torch.utils.data.IterableDataset):
        return (
            f": {kind.__name__} is an IterableDataset, which only its own code can iterate: give "
            "it to headrace.torch.DataLoader(dataset, ...), which keeps its place (`headrace docs "
            "dataloader`); or give the path of its files (`headrace docs data`)"
        )
    if hasattr(kind, "__getitem__") and hasattr(kind, "__len__"):
        return (
            f": {kind.__name__} is read by its own __getitem__: give it to "
            "headrace.torch.DataLoader(dataset, ...), which has the arguments of torch's "
            "(`headrace docs dataloader`); or give the path of its files (`headrace docs data`)"
        )
    if hasattr(kind, "__iter__"):
        return (
            f": {kind.__name__} can only be iterated: derive it from "
            "torch.utils.data.IterableDataset and give it to headrace.torch.DataLoader "
            "(`headrace docs dataloader`); or give the path of its files (`headrace docs data`)"
        )
    return ""


def field_names(dataset: Dataset, fields: Iterable[str] | None) -> list[str]:
    if fields is None:
        return list(dataset.fields)
    names = items("Output.fields", fields, "names of fields")
    for name in names:
        if name not in dataset.fields:
            raise InvalidArgumentError(
                f"Output.fields: got {name!r}; the dataset has {', '.join(dataset.fields)}"
            )
    if not names or len(set(names)) != len(names):
        raise InvalidArgumentError(
            f"Output.fields: got {names!r}, must be names, each once; leave it out for all"
        )
    return names


def wanted_fields(fields: Any, *, ids: bool) -> tuple[Iterable[str] | None, tuple[str, ...] | None]:
    """The fields to deliver, and their names in batches that are dicts; None: named tuples."""
    if not isinstance(fields, Mapping):
        if isinstance(fields, Set):
            raise InvalidArgumentError(
                f"Output.fields: got {shown(fields)}, a set, which has no order: give the fields "
                "in the order that a batch is to have, as hr.Output(fields=['image', 'label'])"
            )
        return fields, None
    keys = tuple(fields)
    if not all(isinstance(key, str) for key in keys) or (ids and SAMPLE_ID in keys):
        raise InvalidArgumentError(
            f"Output.fields: got {shown(fields)}, must be the field of each name that a batch is "
            "to have, as hr.Output(fields={'pixel_values': 'image', 'labels': 'label'})"
            + (f"; {SAMPLE_ID} is the name that ids=True gives" if ids else "")
        )
    return list(fields.values()), keys


def check_names_fields(keys: tuple[str, ...] | None, python: WorkerOptions | None) -> None:
    """Raises if a function of the user decides what batches hold, and so do names."""
    if keys is not None and python is not None and not python.are_fields:
        raise InvalidArgumentError(
            "Output.fields: got a dict, which names what batches hold, and a Python function, "
            "which decides that, too: return a dict from the function, and write "
            "hr.Output(fields=[...]), or leave it out"
        )


def field_kinds(dataset: Dataset, fields: Iterable[str] | None) -> dict[str, str]:
    """The kind of each requested field, in their order."""
    return {name: dataset.kind(name) for name in field_names(dataset, fields)}


def batch_kinds(kinds: Mapping[str, str], transform: Any) -> dict[str, str]:
    """The kinds of fields as batches have them: sounds that are decoded whole are lists."""
    native = transform[0] if isinstance(transform, tuple) and transform else transform
    if isinstance(native, AudioTransform):
        native = dict.fromkeys((name for name, kind in kinds.items() if kind == "bytes"), native)
    chosen = native if isinstance(native, Mapping) else {}

    def is_whole(name: str) -> bool:
        field_transform = chosen.get(name)
        return isinstance(field_transform, AudioTransform) and field_transform.seconds is None

    return {name: "list" if is_whole(name) else kind for name, kind in kinds.items()}


def field_transforms(
    dataset: Dataset,
    names: list[str],
    transform: Native | None,
) -> dict[str, _core.ImageTransform | _core.SoundTransform | None]:
    """The core's transform of each requested field."""
    chosen: dict[str, FieldTransform] = {}
    if isinstance(transform, Mapping):
        unknown = [name for name in transform if name not in names]
        if unknown:
            raise InvalidArgumentError(
                f"transform: names field {unknown[0]!r}, wanted are {', '.join(names)}"
            )
        chosen = {name: _native_transform(name, value) for name, value in transform.items()}
        for name, field_transform in chosen.items():
            _check_kind(dataset, names, name, is_image=isinstance(field_transform, ImageTransform))
    elif isinstance(transform, AudioTransform):
        chosen = {_only_bytes(dataset, names): transform}
    elif transform is not None:
        images = [name for name in names if dataset.kind(name) == "image"]
        if not images:
            raise _no_images(dataset, names)
        _refuse_masks(dataset, names, images)
        chosen = dict.fromkeys(images, _native_transform(", ".join(images), transform))
    made: dict[str, _core.ImageTransform | _core.SoundTransform | None] = dict.fromkeys(names)
    for name, field_transform in chosen.items():
        if dataset.kind(name) == "nested":
            raise InvalidArgumentError(
                f"transform of {name!r}: the field has a list of them in each sample; decode them "
                "in a Python transform (transform=function)"
            )
        try:
            made[name] = field_transform.to_core()
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"transform of {name!r}: {error}") from None
    return made


_BY_FUNCTION = (
    "leave it out, or say in a Python function what is to be made of a sample: "
    "transform=function (`headrace docs workers`)"
)


def _no_images(dataset: Dataset, names: list[str]) -> InvalidArgumentError:
    has = ", ".join(f"{field!r} ({dataset.kind(field)})" for field in names)
    left_out = [field for field in dataset.fields if dataset.kind(field) == "image"]
    more = f"; {_BY_FUNCTION}"
    if left_out:
        more = (
            f": {left_out[0]!r} is one, which Output.fields leaves out; add it, or leave transform "
            "out"
        )
    elif any(is_sound(field, dataset.kind(field)) for field in names):
        more += "; for sounds there is headrace.audio (`headrace docs audio`)"
    return InvalidArgumentError(
        f"transform: an image transform, and of the fields wanted, {has}, none is an image{more}"
    )


def _check_kind(dataset: Dataset, names: list[str], name: str, *, is_image: bool) -> None:
    """Raises if a transform of images, or else of sounds, cannot be of this field."""
    kind = dataset.kind(name)
    if is_image and kind == "image":
        _refuse_masks(dataset, names, [name])
    elif kind not in ("nested", "image" if is_image else "bytes"):
        what, wanted = ("image", "image") if is_image else ("sound", "bytes")
        others = [
            repr(field)
            for field in names
            if dataset.kind(field) == wanted and not is_mask(field, wanted)
        ]
        held = "images" if is_image else "bytes"
        more = f"; {held} are in {', '.join(others)}" if others else ""
        raise InvalidArgumentError(
            f"transform of {name!r}: {'an' if is_image else 'a'} {what} transform, but it holds no "
            f"encoded {what}s: its kind is {kind}{more}; {_BY_FUNCTION}"
        )


def _refuse_masks(dataset: Dataset, names: list[str], images: list[str]) -> None:
    """Raises if one of these image fields, which are to be transformed, is a mask."""
    masks = [image for image in images if is_mask(image, dataset.kind(image))]
    if not masks:
        return
    kept = tuple(field for field in names if field not in masks)
    leave_out = f"leave it out with hr.Output(fields={kept!r})" if kept else "leave transform out"
    raise InvalidArgumentError(
        f"transform of {masks[0]!r}: by its name the pixels of its images are numbers of classes, "
        f"which an image transform would mix, in three channels; {leave_out}, or transform images "
        "and masks alike in a Python function, with hr.Output(decode=False) (`headrace docs "
        "workers`)"
    )


def _only_bytes(dataset: Dataset, names: list[str]) -> str:
    """The field whose bytes are sounds: none says that it is."""
    sounds = [name for name in names if dataset.kind(name) == "bytes"]
    if len(sounds) != 1:
        has = f"{len(sounds)} are bytes: {', '.join(sounds)}" if sounds else "none is of kind bytes"
        raise InvalidArgumentError(
            f"transform: a sound transform, and of the fields wanted {has}; name the one that has "
            "encoded sounds: transform={'wav': headrace.audio.clip(...)}"
        )
    return sounds[0]


def _native_transform(field: str, transform: Any) -> FieldTransform:
    check_was_made(f"transform of {field!r}", transform)
    if not isinstance(transform, (ImageTransform, AudioTransform)):
        raise InvalidArgumentError(
            f"transform of {field!r}: got {transform!r}, must be one of headrace.image (train, "
            "evaluate, resize) or headrace.audio (clip, whole); a Python callable is given for the "
            "whole sample, not for a field: transform=function, or transform=(image transform, "
            "function)"
        )
    return transform


def check_samplers(
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Iterable[Any]] | None,
    batch_size: int,
    drop_last: bool,
) -> None:
    for name, source in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        # Not iter(): a sampler may draw as soon as iter() is called.
        if source is not None and not (
            hasattr(source, "__iter__") or hasattr(source, "__getitem__")
        ):
            raise InvalidArgumentError(f"{name}: got {source!r}, must be an iterable")
        once = gives_one_epoch(source)
        if once is not None:
            around = "" if once is source else f" around {shown(once)}"
            give = f", as {name}=list(...)," if once is source else " to it,"
            raise InvalidArgumentError(
                f"{name}: got {shown(source)}{around}, which can be iterated once, so every epoch "
                f"after the first would be empty; give a list{give} or an object whose __iter__ "
                "begins anew for each epoch, with a __len__ if len(loader) is asked for"
            )
    if batch_sampler is None:
        return
    if sampler is not None or batch_size != 1 or drop_last:
        raise InvalidArgumentError(
            "batch_sampler decides the batches: leave sampler, batch_size and drop_last out"
        )


def check_sampler_fits(order: Order, place: NodePlace | None) -> None:
    """Raises InvalidArgumentError if a sampler cannot decide the order."""
    keeps = [name for name in _core.order_names() if _core.find_order(name).follows_lists]
    if order.name not in keeps:
        raise InvalidArgumentError(
            f"sampler with order={order.name!r}: a sampler says which sample comes when, which "
            f"only order={' or '.join(map(repr, keeps))} keeps; leave one of them out"
        )
    if place is not None and place.local_world_size > 1:
        raise InvalidArgumentError(
            f"sampler with a node process and {place.local_world_size} ranks on this node: each "
            "has a sampler of its own; leave one of them out"
        )
