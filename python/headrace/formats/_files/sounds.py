"""What encoded sounds decode to, from the first bytes of each."""

from __future__ import annotations

import json

import numpy as np

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError, OutOfRangeError
from headrace.formats._files.npy import Read

_BEGIN_BYTES = 512  # of a file without texts and pictures in front
_FLOAT_BYTES = 4
_EXAMPLES = 5


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


class Undecoded:
    """Counts sounds that headrace does not decode, by extension, with the first few names."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, list[str]]] = {}

    def add(self, extension: str, name: str) -> None:
        count, names = self.found.get(extension, (0, []))
        self.found[extension] = (count + 1, [*names, name][:_EXAMPLES])

    def add_json(self, text: str) -> None:
        """Adds what another one found, by its `json`."""
        for extension, more, others in json.loads(text):
            count, names = self.found.get(extension, (0, []))
            self.found[extension] = (count + more, [*names, *others][:_EXAMPLES])

    def json(self) -> str:
        """For the attribute "report", which `Dataset.report` shows."""
        return json.dumps([[kind, *found] for kind, found in sorted(self.found.items())])
