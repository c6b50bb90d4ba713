"""Sounds of other channels or another rate than were given: the message says which to give."""

from __future__ import annotations

import re
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import errors


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def sounds(folder: Path, channels: int, rate: int) -> Path:
    for number in range(3):
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((channels, 2, rate, 0, "NONE", ""))
            file.writeframes(np.full((8 + number, channels), 256 * number, "<i2").tobytes())
    return folder


def batch(folder: Path, transform: Any) -> list[Any]:
    with hr.Loader(
        folder, 3, transform={"audio": transform}, shuffle=False, output="numpy"
    ) as loader:
        (found,) = (list(each[0]) for each in loader)
    return found


@pytest.mark.parametrize("kind", ["whole", "clip"])
@pytest.mark.parametrize(
    ("channels", "rate", "given"),
    [(2, 8000, {}), (6, 16000, {"channels": 2}), (1, 8000, {"channels": 2}), (1, 44100, {})],
)
def test_the_message_says_what_to_give(
    kind: str, channels: int, rate: int, given: dict[str, int], tmp_path: Path
) -> None:
    folder = sounds(tmp_path, channels, rate)
    options: dict[str, Any] = {"rate": 8000 if rate == 44100 else rate, **given}
    if kind == "clip":
        options["seconds"] = 8 / rate
    make = getattr(hr.audio, kind)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        batch(folder, make(**options))
    message = str(caught.value)
    advised = re.search(r"give (rate|channels)=(\d+) to headrace\.audio\.whole\(\)", message)
    assert advised is not None, message
    assert "0.wav" in message
    found = batch(folder, make(**options | {advised[1]: int(advised[2])}))
    lengths = [8, 8, 8] if kind == "clip" else [8, 9, 10]
    assert [each.shape for each in found] == [(length, channels) for length in lengths]
    for number, each in enumerate(found):
        np.testing.assert_array_equal(each, np.float32(number / 128))
