"""Encoded images: their extensions, how they begin, and why one does not decode."""

from __future__ import annotations

import re

from headrace.errors import DataLossError

IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Extensions of fields of kind image: those of torchvision's ImageFolder."""

BEGIN_BYTES = 12
"""That `is_image` looks at."""

_BEGINS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def is_image(value: bytes) -> bool:
    """Whether a value begins as a JPEG, PNG or WebP does; the first bytes of it suffice.

    Not TIFF: files of cameras and microscopes, which are no images for a loader, begin as it does.
    """
    return value.startswith(_BEGINS) or (value[:4] == b"RIFF" and value[8:12] == b"WEBP")


_OTHERS = (
    (b"GIF8", "a GIF"),
    (b"\x00\x00\x00\x0cjP", "a JPEG 2000"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000"),
    (b"\x00\x00\x01\x00", "an ICO"),
    (b"\x00\x00\x00\x0cJXL", "a JPEG XL"),
    (b"\xff\x0a", "a JPEG XL"),
    (b"8BPS", "a PSD"),
    (b"%PDF", "a PDF"),
    (b"<", "HTML, XML or SVG"),
    (b"version ", "a Git LFS pointer: fetch the file with git lfs pull"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x1f\x8b", "a gzip file"),
)
_BEGIN_SHOWN = re.compile(r"neither [\w, ]+ nor \w+, it begins with ((?:[0-9a-f]{2} ?)+)")


def other_format(begin: bytes) -> str | None:
    """What a file is that headrace does not decode, by its first bytes: "a GIF"."""
    if begin[4:8] == b"ftyp":
        brand = begin[8:12]
        of = {b"avif": "an AVIF", b"avis": "an AVIF", b"heic": "a HEIC", b"heix": "a HEIC"}
        return of.get(brand, "an AVIF, a HEIC or a video")
    return next((name for magic, name in _OTHERS if begin.startswith(magic)), None)


def advise_on_decoding(error: BaseException, words: str) -> None:
    """Completes the message of an image or a sound that does not decode: what it is, if it is of a
    format that headrace knows by name, and what to do. `words`: name the dataset in a command."""
    _advise_on_sound(error)
    is_loss = isinstance(error, DataLossError) or isinstance(error.__cause__, DataLossError)
    text = _CORES_ADVICE.sub("", str(error.args[0])) if error.args else ""
    if not is_loss or not text or _FINDS_ALL in text:
        return
    match = _BEGIN_SHOWN.search(text)
    name = None if match is None else other_format(bytes.fromhex(match[1]))
    if name is not None:
        way = f"convert it to JPEG, PNG or WebP; {_ways_out(words)}; what Pillow reads, it decodes"
        error.args = (f"{text}: {name}; {way} for a Python transform=", *error.args[1:])
    elif _DECODING.search(text):
        lines = "\n" if "\n" in text else "; "  # Behind a traceback of a worker.
        error.args = (f"{text}{lines}{_ways_out(words)}", *error.args[1:])


def _advise_on_sound(error: BaseException) -> None:
    """Completes the message of a sound of other channels, or another rate, than were given."""
    match = _OTHER_SOUND.search(str(error.args[0])) if error.args else None
    if match is None or _OPTIONS in str(error.args[0]):
        return
    option = "rate" if match[2] == "Hz" else "channels"
    text = f"; if all sounds have {match[1]} {match[2]}, give {option}={match[1]}{_OPTIONS}"
    error.args = (f"{error.args[0]}{text}", *error.args[1:])


def _ways_out(words: str) -> str:
    return (
        f"`{_FINDS_ALL} --failures FILE {words}` finds all such samples, "
        'headrace.open(..., skip="@FILE") leaves them out, and Loader(on_error="substitute") '
        "replaces them"
    )


_DECODING = re.compile(r"\bdecoding (\w+ )?(image|sound)")
_OTHER_SOUND = re.compile(r"decoding sound of (\d+) (channels?|Hz): the field has")
_OPTIONS = " to headrace.audio.whole() or clip()"
_FINDS_ALL = "headrace verify --decode"
_CORES_ADVICE = re.compile(
    r"; leave the sample out with skip= \(`headrace verify[^;]*\"substitute\""
)
"""What the core says of damage (src/engine/decode/stand_in.cc), without the dataset's name."""
