"""Datasets in the bucket of a test's server."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import numpy as np
from served_objects.object_server import ObjectServer
from small_datasets import Written, picture

FOLDER = "a b"


def put_folder(server: ObjectServer, root: Path, scheme: str = "s3") -> str:
    """Copies the files into the bucket; the URL of the folder."""
    for file in sorted(root.rglob("*")):
        if file.is_file():
            server.put(f"{FOLDER}/{file.relative_to(root).as_posix()}", file.read_bytes())
    return f"{scheme}://data/{FOLDER}"


def put(server: ObjectServer, data: Written, scheme: str = "s3") -> str:
    """Copies the dataset; its URL."""
    return put_folder(server, data.root, scheme) + str(data.path).removeprefix(str(data.root))


def requests(server: ObjectServer) -> Counter[str]:
    """How many there were of each kind, since the last call."""
    kinds = Counter("list" if not x["key"] else x["method"].lower() for x in server.log())
    server.clear_log()
    return kinds


def put_pictures(server: ObjectServer, root: Path, count: int) -> str:
    """Class folders of so many small images, below `root` and in the bucket; their URL."""
    for number in range(count):
        file = root / f"class{number % 3}" / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(number))
    return put_folder(server, root)


def put_rows(server: ObjectServer, root: Path, rows: int, size: int) -> str:
    """One object of rows of so many bytes, which are read together; its URL."""
    root.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(5).integers(0, 256, (rows, size), np.uint8)
    np.save(root / "rows.npy", values)
    return put_folder(server, root) + "/rows.npy"


def fetchers(parent: int) -> list[int]:
    """The fetchers that this process has started and that run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, of = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if int(of) == parent and state != "Z" and b"fetcher" in words:
                    found.append(int(folder.name))
    return found
