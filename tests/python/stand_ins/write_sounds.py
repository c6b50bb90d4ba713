"""Writes sounds with soundfile, and the numbers that it reads from them.

Usage: python write_sounds.py FOLDER, with the packages of tools/envs/soundfile.txt.
FOLDER has NAME.wav or NAME.flac, and NAME.npy: float32 [frames, channels].
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import soundfile

FORMATS = {
    "wav": ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"),
    "flac": ("PCM_S8", "PCM_16", "PCM_24"),
}


# Sizes of frames that programs write before they know them: most write 2^32 - 1 or 0.
UNKNOWN = {"most": 0xFFFFFFFF, "zero": 0, "sox": 0x7FFFF000}


def unfinished(path: Path, size: int, riff: bool) -> bytes:
    """The file as its writer would have left it in a pipe."""
    data = path.read_bytes()
    at = data.index(b"data") + 4
    head = data[:4] + size.to_bytes(4, "little") + data[8:at] if riff else data[:at]
    return head + size.to_bytes(4, "little") + data[at + 4 :]


def keep_numbers(path: Path, source: Path | None = None) -> None:
    """Keeps what soundfile reads from `source`."""
    numbers, rate = soundfile.read(source or path, dtype="float32", always_2d=True)
    assert rate == 22050
    assert len(numbers) in (3001, 3002)  # with the byte that pads an odd size
    np.save(path.with_name(f"{path.stem}-{path.suffix[1:]}.npy"), numbers)


def main(folder: Path) -> None:
    rng = np.random.default_rng(3)
    for kind, subtypes in FORMATS.items():
        for subtype in subtypes:
            for channels in (1, 2):
                tone = np.sin(np.arange(3001)[:, None] / (7 + np.arange(channels)))
                sound = 0.8 * tone + rng.uniform(-0.1, 0.1, tone.shape)
                path = folder / f"{subtype.lower()}-{channels}.{kind}"
                soundfile.write(path, sound, 22050, subtype)
                keep_numbers(path)
                if kind != "wav":
                    continue
                wide = path.with_suffix(".rf64")
                soundfile.write(wide, sound, 22050, subtype, format="RF64")
                keep_numbers(wide)
                for name, size in UNKNOWN.items():
                    for riff in (False, True):
                        pipe = path.with_name(f"{path.stem}-{name}-{riff}.wav")
                        pipe.write_bytes(unfinished(path, size, riff))
                        # libsndfile reads no frames where the size is 0; ffmpeg reads all.
                        keep_numbers(pipe, path.with_name(f"{path.stem}-most-False.wav"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
