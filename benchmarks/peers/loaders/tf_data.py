"""tf.data: TFRecord files in shuffled order, interleaved, and a buffer of samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from loaders import common

FORMAT = "tfrecord"
_READ_BYTES = 8 * 2**20


def shuffle(task: common.Task) -> str:
    return f"order of files, then a buffer of {task.window:,} samples"


def choices(task: common.Task) -> list[common.Settings]:
    return [
        {"interleave": 1, "options": "defaults"},
        {"interleave": 4, "options": "defaults"},
        {"interleave": 4, "options": "large reads"},
    ]


def prepare(source: common.Source, folder: Path) -> None:
    writer, written, number = None, 0, 0
    for _, data, _ in source.shuffled():
        if writer is None:
            writer = tf.io.TFRecordWriter(str(folder / f"{number:06}.tfrecord"))
            written, number = 0, number + 1
        writer.write(data)
        written += len(data)
        if written >= source.shard_bytes:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


def _decode(encoded: Any) -> Any:
    """As TensorFlow's own ImageNet input does it: decodes the crop alone."""
    box, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        tf.zeros([1, 0, 4], tf.float32),
        min_object_covered=0.0,
        aspect_ratio_range=common.RATIO,
        area_range=common.SCALE,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([box[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    image = tf.image.resize(image, (common.IMAGE_SIZE,) * 2, antialias=True)
    return tf.image.random_flip_left_right(tf.cast(tf.clip_by_value(image, 0, 255), tf.uint8))


def _bytes(batch: Any, lengths: Any) -> common.Batch:
    sizes = lengths.numpy()

    def parts() -> Iterable[bytes]:
        return iter(batch.numpy())

    return common.Batch(len(sizes), int(sizes.sum()), parts)


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    files = sorted(map(str, task.stored.glob("*.tfrecord")))
    settings = task.settings
    large = settings["options"] == "large reads"
    samples = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES if large else None),
        cycle_length=settings["interleave"],
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )  # fmt: skip
    samples = samples.shuffle(task.window)
    if task.images:
        batches = samples.map(_decode, tf.data.AUTOTUNE, deterministic=False).batch(task.batch)
    else:
        batches = samples.batch(task.batch)
        batches = batches.map(lambda batch: (batch, tf.strings.length(batch)), tf.data.AUTOTUNE)
    batches = batches.prefetch(tf.data.AUTOTUNE)
    while True:
        if task.images:
            yield (common.image_batch(batch) for batch in batches)
        else:
            yield (_bytes(*batch) for batch in batches)
