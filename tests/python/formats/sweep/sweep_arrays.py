"""Oddities of arrays: npy, npz, HDF5; NaN of tars and TFRecord, too."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sweep_cases import FLOATS, Case, cell
from sweep_writers import KINDS


@cell("npy", "npz", "HDF5", "TFRecord", "tar", oddity="NaN and infinities")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / f"a{KINDS[format].suffix}"
    KINDS[format].write(path, FLOATS)
    yield Case("", path, KINDS[format].rows(FLOATS), options={"format": KINDS[format].format})


@cell("npy", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    data = np.arange(12, dtype=np.int32).reshape(4, 3)
    for version in ((1, 0), (2, 0), (3, 0)):
        with (at / f"{version[0]}.npy").open("wb") as file:
            np.lib.format.write_array(file, data, version)
        rows = [{"value": row} for row in data]
        yield Case(f"version {version[0]}", at / f"{version[0]}.npy", rows)
    records = np.array([(1, 2.5), (3, 4.5)], [("ü", "<i4"), ("x", "<f8")])
    np.save(at / "records.npy", records)
    yield Case("fields", at / "records.npy", [{"ü": r["ü"], "x": r["x"]} for r in records])
    odd = {
        "Fortran order": np.asfortranarray(data),
        "big-endian": data.astype(">i4"),
        "objects": np.array([{}, {}]),
        "no dimension": np.array(5),
        "complex": data.astype(complex),
        "text": np.array(["a", "b"]),
        "dates": np.array(["2024-01-01"], "M8[D]"),
        "uint64": data.astype("u8"),
        "rows of no bytes": np.zeros((3, 0)),
    }
    for name, array in odd.items():
        path = at / f"{name}.npy"
        np.save(path, array)
        yield Case(name, path, None, [path])
    path = at / "cut.npy"
    path.write_bytes((at / "1.npy").read_bytes()[:-1])
    yield Case("cut", path, None, [path])


@cell("npz", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    x = np.arange(4)
    path = at / "names.npz"
    np.savez(path, **{"ü 日": x, "a/b": x, "x.npy": x})
    yield Case("names", path, [{"ü 日": i, "a/b": i, "x.npy": i} for i in x])
    np.savez_compressed(at / "packed.npz", x=x)
    yield Case("compressed", at / "packed.npz", None, [at / "packed.npz"])
    np.savez(at / "lengths.npz", x=x, y=x[:2])
    yield Case("lengths that differ", at / "lengths.npz", None, [at / "lengths.npz", "'y'"])


@cell("npz", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / "twice.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as file:
        warnings.simplefilter("ignore")
        for first in (0, 10):
            data = io.BytesIO()
            np.save(data, np.arange(first, first + 3))
            file.writestr("x.npy", data.getvalue())
    yield Case("arrays of one name", path, None, [path, "'x'"])


@cell("HDF5", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    import h5py

    path = at / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (4, 30), "f8", chunks=(1, 30))[0] = 1
    yield Case("rows never written", path, None, [path, "x"])
    path = at / "empty.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["none"] = h5py.Empty("f8")
    yield Case("an empty dataset", path, None, [path, "none"])


@cell("HDF5", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    import h5py

    x = np.arange(4) * 2.5
    rows = [{"x": each} for each in x]
    for name, options in (
        ("a user block", {"userblock_size": 512}),
        ("latest", {"libver": "latest"}),
        ("pages", {"fs_strategy": "page"}),
    ):
        with h5py.File(at / f"{name}.h5", "w", **options) as file:
            file["x"] = x
        yield Case(name, at / f"{name}.h5", rows)
    with h5py.File(at / "names.h5", "w") as file:
        file["ü/日 x"] = x
    yield Case("names", at / "names.h5", [{"ü_日_x": each} for each in x])
    for name, data in (("big-endian", x.astype(">f8")), ("text", ["a", "b"]), ("complex", x * 1j)):
        with h5py.File(at / f"{name}.h5", "w") as file:
            file["x"] = data
        yield Case(name, at / f"{name}.h5", None, [at / f"{name}.h5", "x"])


@cell("HDF5", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    import h5py

    x = np.arange(4)
    path = at / "links.h5"
    with h5py.File(path, "w") as file:
        file["x"] = x
        file["y"] = file["x"]
        file["z"] = h5py.SoftLink("/x")
    yield Case("links", path, [{"x": each} for each in x])
    path = at / "lost.h5"
    with h5py.File(path, "w") as file:
        file["x"] = x
        file["z"] = h5py.SoftLink("/nowhere")
    yield Case("a link to nothing", path, None, [path, "z"])
    path = at / "out.h5"
    with h5py.File(path, "w") as file:
        file["x"] = x
        file["z"] = h5py.ExternalLink("links.h5", "/x")
    yield Case("a link to another file", path, None, [path, "z"])
