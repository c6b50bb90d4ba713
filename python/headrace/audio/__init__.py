"""Sounds: WAV and FLAC become float32 arrays of frames in C++.

>>> import headrace as hr
>>> hr.audio.clip(1.0, 16000)
AudioTransform(seconds=1.0, rate=16000, channels=1, random=False)
>>> hr.Loader("speech.tar", 64, transform={"wav": hr.audio.clip(1.0, 16000)})  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import flag, integer, shown
from headrace._signature import named_arguments, named_fields
from headrace.errors import InvalidArgumentError

__all__ = ["AudioTransform", "clip", "decode", "whole"]

_RATE_MAX = 2**32 - 1
_CHANNELS_MAX = 64


@named_fields
@dataclass(frozen=True, kw_only=True)
class AudioTransform:
    """The transform of an encoded sound, WAV or FLAC, to one row of a batch.

    A row is a float32 array [frames, channels] of numbers in [-1, 1): the sound, or `seconds` of
    it, cut where it is longer and followed by zeros where it is shorter.
    """

    seconds: float | None
    """Length of a row; None: that of its sound."""
    rate: int
    """Frames a second, which all sounds must have: headrace does not resample."""
    channels: int = 1
    """Number of channels, which all sounds must have."""
    random: bool = False
    """Cut longer sounds at a random position, keyed by (seed, epoch, sample). False: keep their
    first frames."""

    def to_core(self) -> _core.SoundTransform:
        """The core's form; private to headrace."""
        core = _core.SoundTransform()
        core.rate = integer("audio rate", self.rate, 1, _RATE_MAX)
        core.channels = integer("audio channels", self.channels, 1, _CHANNELS_MAX)
        core.random_begin = flag("audio random", self.random)
        if self.seconds is None:
            return core
        seconds: Any = self.seconds
        is_number = isinstance(seconds, (int, float, np.number)) and type(seconds) is not bool
        frames = float(seconds) * core.rate if is_number else 0.0
        if not 0.5 < frames < 2**40:  # Nor NaN. The core refuses what no batch can hold.
            raise InvalidArgumentError(
                f"audio seconds: got {shown(seconds)}, must be a number of seconds that has at "
                f"least one frame at {core.rate} Hz"
            )
        core.frames = round(frames)
        return core


@named_arguments
def clip(seconds: float, rate: int, *, channels: int = 1, random: bool = False) -> AudioTransform:
    """`seconds` of each sound, at a rate of `rate` Hz: batches are [samples, frames, channels]."""
    return AudioTransform(seconds=seconds, rate=rate, channels=channels, random=random)


@named_arguments
def whole(rate: int, *, channels: int = 1) -> AudioTransform:
    """All of each sound, at a rate of `rate` Hz: batches have lists of [frames, channels].

    `Output(ragged="pad")` makes one array of them. Only for formats whose index has the lengths.
    """
    return AudioTransform(seconds=None, rate=rate, channels=channels)


def decode(encoded: bytes | NDArray[np.uint8]) -> tuple[NDArray[np.float32], int]:
    """All frames of a WAV or FLAC as float32 [frames, channels], and its rate: frames a second.

    For a Python transform, whose samples have the encoded bytes.

    Raises:
        DataLossError: neither WAV nor FLAC, damaged, or of an unsupported kind.
        InvalidArgumentError: longer than the limit of decoding.
    """
    data: Any = encoded
    if not isinstance(data, np.ndarray):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidArgumentError(
                f"decoding sound: got {shown(data)}, must be bytes, or an array of uint8"
            )
        data = np.frombuffer(data, np.uint8)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise InvalidArgumentError(
            f"decoding sound: got an array of {data.dtype} {list(data.shape)}, must be the "
            "encoded bytes, uint8"
        )
    return _core.decode_sound(np.ascontiguousarray(data))
