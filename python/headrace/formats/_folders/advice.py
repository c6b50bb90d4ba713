"""What to type for a path that no format opens as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from headrace import _places
from headrace.formats._base.format import Format
from headrace.formats._folders.calls import open_call
from headrace.formats._folders.files_by_format import UNLIKE, contents_of, path_of_files, taker
from headrace.formats._folders.media import is_media

Recognise = Callable[[str], Format | None]

_SHOWN = 3
_PICTURE = (
    "convert the images to JPEG, PNG or WebP (magick mogrify -format png), or name them in a "
    "table, whose files a Python transform decodes (headrace docs formats/manifests)"
)
_SOUND = "convert the sounds to WAV or FLAC of 16 bits (ffmpeg -i a.mp3 a.flac)"
_VIDEO = (
    "name the files in a table, which gives their bytes to a Python transform (headrace docs "
    "formats/manifests)"
)
_ARCHIVE = "unpack it (unzip, 7z x), and open the folder"
_UNDECODED = {
    ".gif": ("GIF", _PICTURE),
    ".avif": ("AVIF", _PICTURE),
    ".heic": ("HEIC", _PICTURE),
    ".heif": ("HEIF", _PICTURE),
    ".jp2": ("JPEG 2000", _PICTURE),
    ".j2k": ("JPEG 2000", _PICTURE),
    ".ico": ("ICO", _PICTURE),
    ".jxl": ("JPEG XL", _PICTURE),
    ".psd": ("PSD", _PICTURE),
    ".svg": ("SVG", _PICTURE),
    ".mp3": ("MP3", _SOUND),
    ".ogg": ("Ogg", _SOUND),
    ".opus": ("Opus", _SOUND),
    ".m4a": ("AAC", _SOUND),
    ".aiff": ("AIFF", _SOUND),
    ".mp4": ("video", _VIDEO),
    ".avi": ("video", _VIDEO),
    ".mkv": ("video", _VIDEO),
    ".mov": ("video", _VIDEO),
    ".webm": ("video", _VIDEO),
    ".zip": ("ZIP", _ARCHIVE),
    ".7z": ("7z", _ARCHIVE),
    ".rar": ("RAR", _ARCHIVE),
}
"""By suffix, what headrace does not decode, and what to do about it."""


def advice_on_file(path: str, formats: Sequence[Format]) -> str:
    """For a file that no format recognises; empty: there is none."""
    if not _places.stat(path).st_size:
        return "copy or write it again"
    name = os.path.basename(path)
    if name.endswith(".bin"):
        tokens = next(row.example() for row in formats if row.name == "tokens")
        return (
            f"a raw file does not say what it holds; of token ids: {open_call(path, tokens)}, "
            "with their type and the length of a sample; of records of equal size: "
            "hr.formats.Records(dtype=...)"
        )
    suffix = os.path.splitext(name)[1].lower()
    if suffix in _UNDECODED:
        return undecoded_advice({suffix})
    row = taker(name, formats) if suffix else None  # Numbered files without one may be anything.
    return "" if row is None else f"say what it is: {open_call(path, row.example())}"


def undecoded_suffixes(suffixes: Iterable[str]) -> set[str]:
    """Those of files that headrace has no decoder for."""
    return {suffix for suffix in suffixes if suffix in _UNDECODED}


def undecoded_advice(suffixes: set[str]) -> str:
    """For files that headrace has no decoder for."""
    names = sorted({_UNDECODED[suffix][0] for suffix in suffixes})
    ways = sorted({_UNDECODED[suffix][1] for suffix in suffixes})
    return f"headrace does not decode {', '.join(names)}; {'; '.join(ways)}"


def advice_on_files(
    path: str, names: Sequence[str], formats: Sequence[Format], recognise: Recognise
) -> str:
    """For a folder of files that are not one dataset; empty: there is none."""
    contents = contents_of(path, names, formats)
    calls = []
    for suffix, files in contents.kinds.items():
        taken = files[:1] if suffix in UNLIKE else files
        where = path_of_files(path, taken, suffix=suffix)
        row = taker(files[0], formats)
        if where is not None and row is not None and not row.hint({suffix}):
            calls.append(open_call(where, None if recognise(where) else row.example()))
    if calls:
        return f"name the files of one dataset: {' or '.join(calls[:_SHOWN])}"
    for name in sorted(names):
        row = recognise(os.path.join(path, name)) if name.endswith(".json") else None
        if row is not None and len(calls) < _SHOWN:  # COCO's
            calls.append(open_call(os.path.join(path, name)))
    if calls:
        return f"open one of its tables of images: {' or '.join(calls)}"
    media = _advice_on_media(path, names, recognise)
    if media:
        return media
    suffixes = undecoded_suffixes(os.path.splitext(name)[1].lower() for name in contents.others)
    return undecoded_advice(suffixes) if suffixes else ""


def _advice_on_media(path: str, names: Sequence[str], recognise: Recognise) -> str:
    """For a folder with images or sounds, and other files; empty: it has none."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(names):
        if is_media(name):
            kinds.setdefault(os.path.splitext(name)[1], []).append(name)
    calls = []
    for suffix, files in kinds.items():
        where = path_of_files(path, files, suffix=suffix)
        if where is not None and recognise(where) is not None:
            calls.append(open_call(where))
    if not calls:
        return ""
    stems = {os.path.splitext(file)[0]: file for files in kinds.values() for file in files}
    others = sorted(name for name in names if not is_media(name))
    pairs = ((other, stems.get(os.path.splitext(other)[0])) for other in others)
    pair = next((f"{other} beside {own}" for other, own in pairs if own is not None), "")
    what = f"{pair} seem to be one sample; " if pair else ""
    return (
        f"{what}the images or sounds alone: {' or '.join(calls[:_SHOWN])}; together: write a "
        "table with a row a sample, which names its files (headrace docs formats/manifests)"
    )
