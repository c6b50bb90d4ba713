"""What a repaired wheel has to hold, and must not hold. Reads the archive; installs nothing."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

BYTES_MAX = 25_000_000
# Each library that is bundled as a file, and the text that has its licence.
BUNDLED = {
    "libFLAC": "flac",
    "libjpeg": "libjpeg-turbo",
    "libmp3lame": "lame",
    "libmpg123": "mpg123",
    "libogg": "libogg",
    "libopus": "opus",
    "libsndfile": "libsndfile",
    "libspng": "libspng",
    "liburing": "liburing",
    "libvorbis": "libvorbis",
    "libvorbisenc": "libvorbis",
    "libwebp": "libwebp",
    "libzstd": "zstd",
}
# What is compiled into the binaries.
COMPILED_IN = (
    *("fmt", "libstdc++", "nanobind", "robin-map", "xxhash"),
    # gRPC and what it needs, into headrace-node alone.
    *("abseil", "c-ares", "grpc", "openssl", "protobuf", "re2"),
)
_ALLOWED_FOLDERS = ("headrace/", "headrace.libs/")
_EXECUTABLE = 0o111


def faults(path: Path, root: Path) -> list[str]:
    """Each in words; empty if the wheel is as it should be. `root`: the repository."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    found = []
    if path.stat().st_size >= BYTES_MAX:
        found.append(f"has {path.stat().st_size} bytes, limit {BYTES_MAX}")
    info = _info_folder(names)
    found += [f"without {name}" for name in sorted(_wanted(root, info)) if name not in names]
    for pattern in (r"headrace/_core\.[\w-]*\.?so", rf"{re.escape(info)}METADATA"):
        if not any(re.fullmatch(pattern, name) for name in names):
            found.append(f"without {pattern}")
    if not modes.get("headrace/headrace-node", 0) & _EXECUTABLE:
        found.append("headrace/headrace-node is not executable")
    found += _library_faults(names)
    allowed = (*_ALLOWED_FOLDERS, info)
    found += [f"with {name}" for name in sorted(names) if not name.startswith(allowed)]
    found += [f"with {name}, a source" for name in names if name.endswith((".cc", ".h", ".cmake"))]
    return found


def summary(path: Path) -> str:
    """Its size and its platform tag."""
    return f"{path.stat().st_size / 1e6:.2f} MB, {path.stem.rpartition('-')[2]}"


def _info_folder(names: set[str]) -> str:
    return next(name.split("/")[0] for name in names if ".dist-info/" in name) + "/"


def _wanted(root: Path, info: str) -> set[str]:
    package = root / "python"
    sources = [*package.rglob("*.py"), *package.rglob("*.pyi"), package / "headrace" / "py.typed"]
    wanted = {source.relative_to(package).as_posix() for source in sources}
    docs = root / "docs"
    pages = [*docs.glob("*.md"), *docs.glob("formats/*.md"), *docs.glob("guides/*.md")]
    wanted |= {f"headrace/_docs/{page.relative_to(docs).as_posix()}" for page in pages}
    wanted |= {"headrace/headrace-node", f"{info}licenses/LICENSE"}
    texts = (*BUNDLED.values(), *COMPILED_IN)
    return wanted | {f"{info}licenses/third_party/{text}.txt" for text in texts}


def _library_faults(names: set[str]) -> list[str]:
    bundled = {re.split("[.-]", Path(name).name)[0] for name in names if ".libs/" in name}
    found = [f"without {name}.so" for name in sorted(BUNDLED.keys() - bundled)]
    unknown = sorted(bundled - BUNDLED.keys())
    return found + [f"with {name}.so, whose licence nobody names" for name in unknown]
