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


def main(folder: Path) -> None:
    rng = np.random.default_rng(3)
    for kind, subtypes in FORMATS.items():
        for subtype in subtypes:
            for channels in (1, 2):
                tone = np.sin(np.arange(3001)[:, None] / (7 + np.arange(channels)))
                sound = 0.8 * tone + rng.uniform(-0.1, 0.1, tone.shape)
                path = folder / f"{subtype.lower()}-{channels}.{kind}"
                soundfile.write(path, sound, 22050, subtype)
                numbers, rate = soundfile.read(path, dtype="float32", always_2d=True)
                assert rate == 22050
                np.save(path.with_name(f"{path.stem}-{kind}.npy"), numbers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
