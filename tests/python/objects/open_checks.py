"""Datasets in the bucket of a test's server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from served_objects.object_server import ObjectServer
from small_datasets import Written

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
