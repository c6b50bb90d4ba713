"""A Loader as a `tf.data.Dataset`. Needs TensorFlow; `headrace docs trainers`.

>>> import headrace.tensorflow
>>> batches = headrace.tensorflow.dataset(hr.Loader(path, 256, output="numpy"))
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from headrace._loader import Loader, feed_of
from headrace._signature import named_arguments
from headrace._workers._output import SAMPLE_ID
from headrace.errors import InvalidArgumentError

__all__ = ["dataset"]


@named_arguments
def dataset(loader: Loader[Any], *, signature: Any = None) -> Any:
    """A `tf.data.Dataset` whose elements are the batches of a loader.

    Each iteration of it is the loader's next epoch. A batch is a tuple of tensors, or a dict if the
    loader's `Output.fields` are one; encoded images, bytes and texts are tensors of strings. The
    loader reads ahead itself: do not call `prefetch`, and ``loader.state_dict()`` is the position
    of the loop.

    Args:
        loader: a `headrace.Loader`, best with ``output="numpy"``. The dataset keeps it.
        signature: of a batch, as `output_signature` of ``tf.data.Dataset.from_generator``. Default:
            that of the loader's fields. A loader with a Python transform needs it, since the result
            of the function is not known before it runs.

    Raises:
        InvalidArgumentError: names the invalid argument, or the field that no tensor can hold.
    """
    if not isinstance(loader, Loader):
        raise InvalidArgumentError(f"loader: got {loader!r}, must be a headrace.Loader")
    tf: Any = importlib.import_module("tensorflow")
    if signature is None:
        signature = _signature(loader, tf)
    options = tf.data.Options()
    # Otherwise TensorFlow adds a prefetch(): a state would be some batches too far.
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_generator(
        lambda: (_converted(batch) for batch in loader), output_signature=signature
    ).with_options(options)


def _signature(loader: Loader[Any], tf: Any) -> tuple[Any, ...] | dict[str, Any]:
    """The tensors of a batch."""
    feed = feed_of(loader)
    delivers = feed.delivers
    if delivers.python:
        raise InvalidArgumentError(
            "signature: the loader has a Python transform or a collate_fn, so it is not known what "
            "a batch has; give it, as signature=(tf.TensorSpec(...), ...)"
        )
    size = feed.options.batch_size if feed.source is None and feed.options.drop_last else None
    made = []
    for name, dtype, shape, ragged in delivers.schema:
        if not ragged:
            made.append(tf.TensorSpec((size, *shape), tf.as_dtype(dtype)))
        elif delivers.kinds.get(name) in ("image", "bytes", "text"):
            made.append(tf.TensorSpec((size,), tf.string))
        else:
            raise InvalidArgumentError(
                f"loader: samples differ in the shape of field {name!r}, which no tensor of a "
                "tf.data.Dataset holds: leave it out by Output.fields, or give the loader a Python "
                "transform that makes one shape, and signature="
            )
    if delivers.ids:
        made.append(tf.TensorSpec((size,), tf.int64))
    if delivers.keys is not None:
        return dict(zip([*delivers.keys, *[SAMPLE_ID] * delivers.ids], made, strict=True))
    return tuple(made)


def _converted(value: Any) -> Any:
    """A batch, or a part of it, as NumPy arrays and lists of bytes."""
    if isinstance(value, dict):
        return {name: _converted(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_converted, value))
    if isinstance(value, list):
        return [row if isinstance(row, str) else _array(row).tobytes() for row in value]
    return _array(value)


def _array(value: Any) -> Any:
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
