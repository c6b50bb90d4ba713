"""Formats read files by `headrace._places` alone: they describe those of another place, too."""

from __future__ import annotations

import glob
import os
import random
import shutil
from pathlib import Path

import pytest
from memory_place import SCHEME, VERSION, MemoryPlace
from small_datasets import Written, described

import headrace as hr
from headrace import _places, errors
from headrace._places import table
from headrace.formats._files.paths import dataset_path
from headrace.formats._files.patterns import expand, pattern_of, searched_folders

AT = f"{SCHEME}://bucket/data"
FORMATS = (
    *("folder", "npy", "npz", "records", "tokens", "tars", "tfrecord", "mds", "arrow"),
    *("manifest", "coco"),
)
NOT_LOCAL = (
    "files of this format are read from a local file system only; copy the data to a disk, or "
    "mount the storage as a file system (s3fs, gcsfuse, rclone mount, NFS), and name the path"
)


def placed(objects: MemoryPlace, monkeypatch: pytest.MonkeyPatch) -> MemoryPlace:
    monkeypatch.setitem(table.PLACES, SCHEME, objects)
    return objects


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_describes_files_of_another_place_as_those_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data = Written(name, tmp_path)
    path = f"{AT}{str(data.path).removeprefix(str(data.root))}"
    wanted = described(hr.open(data.path, format=data.format).index, str(data.root))
    place = placed(MemoryPlace.copy_of(data.root, AT), monkeypatch)
    shutil.rmtree(data.root)
    ds = hr.open(path, format=data.format)
    assert described(ds.index, AT) == wanted
    assert {ds.index.object(i)[2] for i in range(ds.index.object_count)} == {VERSION}
    assert hr.open(path, format=data.format).index.path == ds.index.path  # It is current.
    place.objects = {path: data + b"\0" for path, data in place.objects.items()}
    assert not ds.format_row.is_current(ds.index)


def test_what_needs_a_local_path_refuses_another_one() -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        _places.local_path("s3://bucket/data")
    assert str(caught.value) == f"reading s3://bucket/data: {NOT_LOCAL}"


def test_a_path_with_no_such_scheme_is_a_url_and_one_to_nothing_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="this is a URL"):
        dataset_path("opening", f"{AT}/a.npy")
    placed(MemoryPlace({f"{AT}/a.npy": b""}), monkeypatch)
    assert dataset_path("opening", f"{AT}/./b/../a.npy") == f"{AT}/a.npy"
    with pytest.raises(errors.NotFoundError) as caught:
        dataset_path("opening", f"{AT}/b.npy")
    assert str(caught.value) == (
        f"opening {AT}/b.npy: there is no such object, and no key begins with it and /; correct "
        "the URL"
    )


def test_patterns_stand_for_files_of_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a-0.tar", "a-1.tar", "b.tar", ".a-2.tar", "x/a-3.tar", "x/y/a-4.tar")
    place = placed(MemoryPlace({f"{AT}/{name}": b"" for name in names}), monkeypatch)
    assert expand(f"{AT}/a-*.tar") == [f"{AT}/a-0.tar", f"{AT}/a-1.tar"]
    assert expand(f"{AT}/{{b,a-0}}.tar") == [f"{AT}/b.tar", f"{AT}/a-0.tar"]
    assert expand(f"{AT}/*/a-*.tar") == [f"{AT}/x/a-3.tar"]
    assert len(expand(f"{AT}/**/*.tar")) == 5
    assert searched_folders(f"{AT}/*/a-*.tar") == {AT, f"{AT}/x"}
    files = [f"{AT}/x/a-3.tar", f"{AT}/b.tar"]
    assert pattern_of(files) == f"{AT}/{{x/a-3.tar,b.tar}}"
    place.requests.clear()
    assert [x for x in _places.names(AT) if x.startswith("a")] == ["a-0.tar", "a-1.tar"]
    assert place.requests == {"list": 1}


def test_a_file_of_another_place_is_read_as_one_of_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(b"line %d\n" % i for i in range(100_000))
    placed(MemoryPlace({f"{AT}/a.txt": text}), monkeypatch)
    with _places.open(f"{AT}/a.txt") as file:
        assert file.readline() == b"line 0\n"
        assert file.seek(-8, os.SEEK_END) == len(text) - 8
        assert file.read() == text[-8:]
        file.seek(10)
        assert file.read() == text[10:]
        with pytest.raises(ValueError, match="before the beginning"):
            file.seek(-1)
    with pytest.raises(FileNotFoundError):
        _places.open(f"{AT}/b.txt")
    with pytest.raises(IsADirectoryError):
        _places.open(AT)


def test_a_local_file_is_closed_and_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ab")
    with _places.open(str(tmp_path / "a")) as file:
        assert file.read() == b"ab"
    assert file.closed
    with pytest.raises(IsADirectoryError):
        _places.open(str(tmp_path))


def tree(root: Path, rng: random.Random) -> None:
    """Files, folders, hidden ones, links to a file, to a folder, to nothing and to themselves."""
    (root / "leaf/below").mkdir(parents=True)
    (root / "leaf/c.x").write_bytes(b"")
    folders = [root]
    for number in range(50):
        at = rng.choice(folders) / rng.choice((f"a{number}", f".h{number}", f"[b]{number}", "c.x"))
        kind = rng.randrange(5)
        if os.path.lexists(at):
            continue
        if kind < 2:
            at.mkdir()
            folders.append(at)
        elif kind == 2:
            at.symlink_to(rng.choice((root / "leaf", root / "leaf/c.x", root / "nothing", at)))
        else:
            at.write_bytes(b"")


PATTERNS = ("*", "a*", ".*", "*/*", "*/c.x", "*/*/a*", "**", "**/*", "**/", "a*/**/c.x", "[[]b]*")


@pytest.mark.parametrize("seed", range(20))
def test_wildcards_and_walks_find_what_those_of_the_standard_library_do(
    tmp_path: Path, seed: int
) -> None:
    tree(tmp_path, random.Random(seed))
    for pattern in (*PATTERNS, "a1", "nothing", "nothing/*", "c.x/"):
        path = f"{_places.escape(str(tmp_path))}/{pattern}"
        assert sorted(_places.match(path)) == sorted(glob.glob(path)), pattern
        found = sorted(_places.match(path, any_depth=True))
        assert found == sorted(glob.glob(path, recursive=True)), pattern
    walks = (os.walk(str(tmp_path), followlinks=True), _places.walk(str(tmp_path)))
    wanted, walked = (sorted((at, sorted(x), sorted(y)) for at, x, y in walk) for walk in walks)
    assert walked == wanted


def test_links_that_lead_round_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/round").symlink_to(tmp_path)
    path = f"{tmp_path}/**"
    found = sorted(_places.match(path, any_depth=True))
    assert found == sorted(glob.glob(path, recursive=True))
    walk = os.walk(tmp_path, followlinks=True)
    assert [x[0] for x in _places.walk(str(tmp_path))] == [x[0] for x in walk]


def test_a_walk_goes_on_in_the_folders_that_are_left(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "d").symlink_to(tmp_path / "a")
    visited = []
    for where, folders, _ in _places.walk(str(tmp_path)):
        visited.append(os.path.relpath(where, tmp_path))
        folders[:] = sorted((x for x in folders if x != "c"), reverse=True)
    assert visited == [".", "d", "d/b", "a", "a/b"]
    assert list(_places.walk(str(tmp_path / "none"))) == []
