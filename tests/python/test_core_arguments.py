"""What functions of the core refuse: arguments that the package itself never gives."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace import _core, errors

EMPTY = np.array([], np.uint64)


def image() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--name SOCKET is missing"),
        (["--nome", "x"], "argument '--nome' is unknown or has no value; see --help"),
        (["--name"], "argument '--name' is unknown or has no value"),
        (
            ["--links", "127.0.0.1:0", "--key"],
            "argument '--key' of --links is unknown or has no value; see --help",
        ),
        (["--name", "x", "--memory", "4G"], "--memory: got '4G', must be a number of bytes"),
    ],
)
def test_options_of_the_node_process_that_are_wrong_are_named(
    arguments: list[str], said: str
) -> None:
    program = Path(_core.__file__).with_name("headrace-node")
    told = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert said in told.stderr


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: _core.decode_image(image(), _core.ImageTransform(), epoch=1 << 24),
            "decode_image epoch: got 16777216, must be below 16777216",
        ),
        (
            lambda: _core.hash64_ranges(b"abc", np.array([1], np.uint64), EMPTY),
            "hash64_ranges: 1 offsets and 0 sizes",
        ),
        (
            lambda: _core.expected_inflation(
                "epoch", {}, index=(8, 1), labels=np.zeros(3, np.uint32)
            ),
            "labels: got 3 for 8 samples",
        ),
        (lambda: _core.permutation(4, 0, 1 << 24, 0), r"epoch must be below 2\*\*24"),
        (
            lambda: _core.OrderStream("exact", {}, index=(8, 1), batch_size=-1),
            "batch_size: got -1, expected another type, or a value in its range",
        ),
        (
            lambda: _core.measure_copy(1, 0, 1),
            "seconds: got 0.000000, must be above 0 and at most 3600",
        ),
        (
            lambda: _core.IndexContents(1, "/data").add_extent_field(
                "bytes", ("bytes", "uint8", []), (EMPTY, EMPTY, EMPTY)
            ),
            "extents: objects, offsets and sizes must have 1 entries each",
        ),
    ],
)
def test_arguments_that_are_wrong_are_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_the_name_of_a_parameter_is_text() -> None:
    with pytest.raises(TypeError, match="the name of an order's parameter is a str"):
        _core.expected_inflation("epoch", {3: 1}, index=(8, 1))  # type: ignore[dict-item]


def test_a_nul_in_a_name_is_refused_by_the_name() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"text 'a\\x00b': has a NUL character"):
        _core.Index.open("a\0b")
