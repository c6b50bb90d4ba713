"""What encoded sounds decode to, from the first bytes of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError, OutOfRangeError
from headrace.formats._base.findings import OTHER_SOUND, SOUNDS, FindingCounts
from headrace.formats._files.npy import Read

_BEGIN_BYTES = 512  # of a file without texts and pictures in front
_FLOAT_BYTES = 4


def sound_bytes(read: Read, size: int) -> int | None:
    """The bytes of a WAV or FLAC, decoded to float32; None: it is none that headrace decodes."""
    count = _BEGIN_BYTES
    while True:
        begin = np.frombuffer(read(0, min(count, size)), np.uint8)
        try:
            frames, channels, _ = _core.read_sound_info(begin, size)
        except OutOfRangeError:
            count *= 16
        except (DataLossError, InvalidArgumentError):
            return None
        else:
            return frames * channels * _FLOAT_BYTES


def sound_sizes(
    sounds: Iterable[tuple[Read, int, str]], undecoded: FindingCounts
) -> npt.NDArray[np.uint64]:
    """What each sound decodes to; 0 of one that is not decoded. The texts: names, or places."""
    sizes = []
    for read, size, name in sounds:
        decoded = sound_bytes(read, size)
        if decoded is None:
            extension = os.path.splitext(name)[1].lower()
            undecoded.add(extension if extension in SOUNDS else OTHER_SOUND, name)
        sizes.append(decoded or 0)
    return np.array(sizes, np.uint64)


def check_sounds(path: str, sounds: Sequence[str], kinds: Mapping[str, str]) -> None:
    """Raises unless `sounds` names fields that hold bytes. `kinds`: of all fields."""
    if isinstance(sounds, str):
        raise InvalidArgumentError(f"sounds: got {sounds!r}, must be names, as ({sounds!r},)")
    for name in sounds:
        if kinds.get(name) != "bytes":
            has = f"it holds {kinds[name]}" if name in kinds else "there is no such field"
            fields = [field for field, kind in kinds.items() if kind == "bytes"]
            there = f"name fields of bytes: {', '.join(fields)}"
            raise InvalidArgumentError(
                f"indexing {path}: sounds: got {name!r}: {has}; "
                f"{there if fields else 'leave sounds out: no field has bytes'}"
            )
