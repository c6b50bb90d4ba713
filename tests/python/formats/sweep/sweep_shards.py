"""Oddities of tars, TFRecord and tokens."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sweep_cases import NUMBERS, ODD_NAMES, Case, Rows, cell
from sweep_writers import (
    KINDS,
    add,
    feature,
    frame,
    part,
    write_tar,
    write_tfrecord,
    write_tokens,
)

from headrace.formats import TFRecord, Tokens


@cell("tar", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("1.txt", "1.cls", "2.txt", "3.txt", "3.cls"):
            add(tar, name, b"7")
    yield Case("a member less", path, None, [path, "2"])


@cell("tar", oddity="links")
def _(format: str, at: Path) -> Iterator[Case]:
    for name, kind, target in (
        ("hard link members", tarfile.LNKTYPE, "1.txt"),
        ("link members", tarfile.SYMTYPE, "1.txt"),
        ("link members that lead out", tarfile.SYMTYPE, "../1.txt"),
    ):
        path = at / f"{name}.tar"
        with tarfile.open(path, "w") as tar:
            add(tar, "1.txt", b"one")
            info = tarfile.TarInfo("2.txt")
            info.type, info.linkname = kind, target
            tar.addfile(info)
        out = target.startswith("..")
        rows: Rows = [{"txt": b"one"}] * (1 if out else 2)
        yield Case(name, path, rows, [path, "2.txt"], warns=out)


@cell("tar", oddity="names")
def _(format: str, at: Path) -> Iterator[Case]:
    for number, format_of_tar in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        path, names = at / f"{number}.tar", [*ODD_NAMES, "d" * 120 + "/" + "n" * 120]
        with tarfile.open(path, "w", format=format_of_tar) as tar:
            for name in names:
                add(tar, f"{name}.txt", ascii(name).encode())
        yield Case(f"of members {number}", path, [{"txt": ascii(n).encode()} for n in names])


@cell("tar", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = KINDS["tar"].rows(NUMBERS)
    for name, kind in (("USTAR", 0), ("GNU", 1), ("PAX", 2)):
        path = at / f"{name}.tar"
        with tarfile.open(
            path, "w", format=kind, pax_headers={"comment": "x"} if kind == 2 else {}
        ) as tar:
            folder = tarfile.TarInfo("./d")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            for number, row in enumerate(rows):
                buffer = io.BytesIO()
                np.save(buffer, row["npy"])
                add(tar, f"./d/{number}.npy", buffer.getvalue())
                add(tar, f"./d/{number}.txt", row["txt"])
        yield Case(name, path, rows)
    plain = (at / "USTAR.tar").read_bytes()
    for name, data in (("cut", plain[:2000]), ("packed", gzip.compress(plain))):
        path = at / f"{name}.tar"
        path.write_bytes(data)
        yield Case(name, path, None, [path])
    write_tar(at / "twice.tar", NUMBERS)
    path = at / "joined.tar"
    path.write_bytes((at / "twice.tar").read_bytes() * 2)
    yield Case("joined", path, None, [path])


@cell("tar", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / "b.tar"
    with tarfile.open(path, "w") as tar:
        for data in (b"1", b"2"):
            add(tar, "a.txt", data)
    yield Case("members of one name", path, None, [path, "'a'", ".txt"])


NUMBER = feature("x", 2, part(1, np.float32(1.5).tobytes()))
WORD = feature("text", 1, part(1, b"a"))
EXAMPLES = TFRecord(examples=True)


@cell("TFRecord", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    for name, second in (
        ("a feature less", part(1, NUMBER)),
        ("no value", part(1, NUMBER + feature("text", 1, b""))),
        ("no list", part(1, NUMBER + part(1, part(1, b"text") + part(2, b"")))),
    ):
        path = at / f"{name}.tfrecord"
        path.write_bytes(frame(part(1, NUMBER + WORD)) + frame(second))
        yield Case(name, path, None, [path, "'text'"], {"format": EXAMPLES})


@cell("TFRecord", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / "a.tfrecord"
    write_tfrecord(path, NUMBERS)
    data = path.read_bytes()
    options = {"format": KINDS["TFRecord"].format}
    for name, odd in (
        ("cut", data[:-3]),
        ("a checksum", data[:8] + bytes([data[8] ^ 1]) + data[9:]),
        ("packed", gzip.compress(data)),
    ):
        path = at / f"{name}.tfrecord"
        path.write_bytes(odd)
        yield Case(name, path, None, [path], options)


@cell("TFRecord", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / "b.tfrecord"
    again = feature("x", 2, part(1, np.float32(2.5).tobytes()))
    path.write_bytes(frame(part(1, NUMBER + again)))
    rows = [{"x": np.float32(2.5)}]  # As protocol buffers say of maps: the last counts.
    yield Case("features of one name", path, rows, options={"format": EXAMPLES})


@cell("tokens", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    raw = at / "raw.bin"
    write_tokens(raw, NUMBERS)
    header = np.zeros(256, "<i4")
    header[:3] = [20240520, 1, 2 * len(NUMBERS) + 1]
    path = at / "llm.bin"
    path.write_bytes(header.tobytes() + raw.read_bytes())
    yield Case(
        "of llm.c", path, KINDS["tokens"].rows(NUMBERS), options={"format": Tokens(window=2)}
    )
    path = at / "short.bin"
    header[2] = 99
    path.write_bytes(header.tobytes() + raw.read_bytes())
    yield Case("another count", path, None, [path], {"format": Tokens(window=2)})
    path = at / "odd.bin"
    path.write_bytes(raw.read_bytes() + b"\0")
    yield Case("half a token", path, None, [path], {"format": KINDS["tokens"].format})
