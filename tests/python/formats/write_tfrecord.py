"""Writes tests/python/formats/tensorflow/, with TensorFlow 2.21, which tests do not need.

Usage: python write_tfrecord.py, in the environment of benchmarks/peers/envs/tensorflow.txt.
examples.tfrecord has examples; rows.json what tf.data and tf.io.parse_single_example read of them:
bytes in hexadecimal, of a record its SHA-256. Run it again only if the fixture is to have more.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import tensorflow as tf

FOLDER = Path(__file__).parent / "tensorflow"
TEXTS = ["", "ü", "日本語 🚀", "x" * 150, "line\nline"]


def example(i: int) -> Any:
    image = tf.io.encode_jpeg(tf.fill([4 + i % 3, 5, 3], tf.cast(9 * i % 256, tf.uint8))).numpy()
    ints, floats, raw = tf.train.Int64List, tf.train.FloatList, tf.train.BytesList
    feature = {
        "image": tf.train.Feature(bytes_list=raw(value=[image])),
        "text": tf.train.Feature(bytes_list=raw(value=[TEXTS[i % 5].encode()])),
        "label": tf.train.Feature(int64_list=ints(value=[i - 3])),
        "big": tf.train.Feature(int64_list=ints(value=[(-1) ** i * 2**62])),
        "score": tf.train.Feature(float_list=floats(value=[i / 7])),
        "box": tf.train.Feature(float_list=floats(value=[i, -i, 0.5, 1e30])),
        "pair": tf.train.Feature(int64_list=ints(value=[i, -1])),
        "ids": tf.train.Feature(int64_list=ints(value=range(-1, 200 * (i % 4), 37))),
        "waves": tf.train.Feature(float_list=floats(value=[0.25] * (i % 4))),
        "names": tf.train.Feature(bytes_list=raw(value=[b"a"] * (i % 3))),
        "none": tf.train.Feature(),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


PARSED = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "text": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "big": tf.io.FixedLenFeature([], tf.int64),
    "score": tf.io.FixedLenFeature([], tf.float32),
    "box": tf.io.FixedLenFeature([4], tf.float32),
    "pair": tf.io.FixedLenFeature([2], tf.int64),
    "ids": tf.io.RaggedFeature(tf.int64),
    "waves": tf.io.RaggedFeature(tf.float32),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    path = str(FOLDER / "examples.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for i in range(8):
            writer.write(example(i).SerializeToString(deterministic=True))
    rows = []
    for record in tf.data.TFRecordDataset(path):
        parsed = tf.io.parse_single_example(record, PARSED)
        row = {"record": hashlib.sha256(record.numpy()).hexdigest()}
        for name, value in parsed.items():
            found = value.numpy()
            row[name] = found.hex() if isinstance(found, bytes) else found.tolist()
        rows.append(row)
    (FOLDER / "rows.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
