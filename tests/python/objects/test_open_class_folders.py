"""Class folders in an object store: their index is that of the same folders on a disk."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from open_checks import put_folder, requests
from served_objects.object_server import ObjectServer
from small_datasets import Written, described, picture

import headrace as hr
from headrace import errors
from headrace.formats._folders.skip_rules import SkipRules

FOUND = ("skip", "skip_unmatched", "report", "classes")
SKIPS: tuple[tuple[str, ...], ...] = (
    (),
    ("*.bmp",),
    ("/ant/deep", "bee/x*.png", "nothing"),
    (":undecodable", "deep/*"),
    (":empty", ":hidden", "ant"),
    ("?ee", "/cat/deep/er/", "ant/deep/er/01.png"),
)


def tree(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    names = ("01.png", "x2.PNG", "b.bmp", ".h.jpg", "note.txt", "é c.webp", "+#?%.jpeg")
    for folder in ("ant", "bee", "cat", "ant/deep", "ant/deep/er", "cat/deep/er", "bee/.hid"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in (*rng.sample(names, 4), "always.png"):
            (root / folder / name).write_bytes(rng.choice((b"", b"12345", picture(1))))
    (root / "README.md").write_text("x")


@pytest.mark.filterwarnings("ignore:headrace")
@pytest.mark.parametrize("skip", SKIPS)
def test_class_folders_are_those_of_a_disk(
    tmp_path: Path, server: ObjectServer, skip: tuple[str, ...]
) -> None:
    root = tmp_path / "data"
    tree(root, len(skip))
    wanted = hr.open(root, skip=skip)
    url = put_folder(server, root)
    ds = hr.open(url, skip=skip)
    assert described(ds.index, url) == described(wanted.index, str(root))
    for name in FOUND:
        found, on_disk = (json.loads(x.index.attributes[name]) for x in (ds, wanted))
        assert found == on_disk, name


def test_images_that_come_go_or_change_are_noticed(tmp_path: Path, server: ObjectServer) -> None:
    data = Written("folder", tmp_path)
    url = put_folder(server, data.root)
    first = hr.open(url)
    requests(server)
    assert hr.open(url).index.path == first.index.path
    assert hr.open(url).fingerprint == first.fingerprint
    assert requests(server) == {"list": 8}  # Each folder once.
    server.put("a b/README.md", b"beside the classes")
    assert hr.open(url).fingerprint == first.fingerprint
    server.put("a b/class1/zz.png", picture(99))
    assert len(hr.open(url)) == len(first) + 1
    server.put("a b/class1/zz.png", picture(98))
    changed = hr.open(url)
    assert len(changed) == len(first) + 1
    server.put("a b/class9/a.png", picture(1))
    assert hr.open(url).classes == ("class0", "class1", "class2", "class9")


def test_a_folder_without_images_is_refused_as_on_a_disk(
    tmp_path: Path, server: ObjectServer
) -> None:
    data = Written("folder", tmp_path)
    (data.root / "notes").mkdir()
    (data.root / "notes/a.md").write_text("x")
    texts = []
    for path in (str(data.root), put_folder(server, data.root)):
        with pytest.raises(errors.InvalidArgumentError, match="folders without an image") as caught:
            hr.open(path)
        texts.append(str(caught.value).partition(": folders")[2])
        assert len(hr.open(path, skip="/notes")) == len(hr.open(data.root, skip="/notes"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("skip", [("//",), (":nothing",)])
def test_wrong_patterns_are_refused(skip: tuple[str, ...]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="skip: got"):
        SkipRules(skip)


def test_folder_markers_are_no_files(tmp_path: Path, server: ObjectServer) -> None:
    data = Written("folder", tmp_path)
    url = put_folder(server, data.root)
    for marker in ("a b/", "a b/class0/", "a b/class0"):
        server.put(marker, b"")
    ds = hr.open(url)
    assert described(ds.index, url) == described(hr.open(data.root).index, str(data.root))
    assert json.loads(ds.index.attributes["report"]) == []
