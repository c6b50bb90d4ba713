"""What errors about tars advise helps when it is typed as it stands."""

from __future__ import annotations

import io
import itertools
import random
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from format_checks import check_rows, write_with_packages

import headrace as hr
from headrace import errors
from headrace.formats import WebDataset

Entry = tuple[str, bytes]


def write(path: Path, entries: Sequence[Entry]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sample(key: str, *extensions: str) -> list[Entry]:
    return [(f"{key}.{each}", b"%d" % len(key)) for each in extensions]


def refusal(path: Path, row: WebDataset | None = None) -> str:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path, format=row)
    assert str(path.parent) in str(caught.value)
    return str(caught.value)


def advised(text: str) -> WebDataset:
    """The format that a message names."""
    found = re.findall(r"format=(hr\.formats\.WebDataset\(.*\))$", text)
    assert len(found) == 1, text
    row = eval(found[0], {"hr": hr})
    assert isinstance(row, WebDataset)
    return row


def sorted_tar(text: str, where: Path) -> Path:
    """Runs the command that a message names, and returns the only tar that it wrote."""
    (command,) = re.findall(r"`(.*?)`$", text)
    environment = {"TMPDIR": str(where), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, shell=True, check=True, env=environment)
    (found,) = where.glob("*-sorted/*.tar")
    return found


@pytest.mark.parametrize("folder", ["plain", "with blank", "it's"])
@pytest.mark.parametrize(
    "names",
    [
        ["000.txt", "001.txt", "000.cls", "001.cls"],
        ["001.txt", "000.txt", "001.cls", "000.cls"],
        ["000.txt", "000.cls", "001.txt", "002.txt", "001.cls", "002.cls"],
        ["d/1.txt", "e/1.txt", "d/1.cls", "e/1.cls"],
        ["img/a.txt", "a-1.txt", "a.txt", "a.cls", "a-1.cls", "img/a.cls"],
    ],
)
def test_members_that_are_not_beside_each_other_are_sorted(
    tmp_path: Path, folder: str, names: list[str]
) -> None:
    content = {name: b"%d" % number for number, name in enumerate(names)}
    path = write(tmp_path / folder / "a.tar", list(content.items()))
    text = refusal(path)
    assert "its members are not beside each other, as those of" in text
    found = sorted_tar(text, tmp_path)
    dataset, own = check_rows(found)
    keys = sorted({name[: -len("txt")] for name in names})
    assert len(dataset) == len(keys)
    for key, mine in zip(keys, own, strict=True):
        assert bytes(mine["txt"]) == content[f"{key}txt"]
        assert int(mine["label"]) == int(content[f"{key}cls"])
    hr.open(found.parent)  # The folder that was written is a dataset itself.


def test_tars_in_the_order_of_the_disk_are_sorted(tmp_path: Path) -> None:
    """As `tar -cf a.tar folder` writes them: 300 samples in an order of the file system's."""
    names = [f"{number:03}.{kind}" for number in range(300) for kind in ("txt", "json", "cls")]
    random.Random(3).shuffle(names)
    content = {name: b"%d" % int(name[:3]) for name in names}
    text = refusal(write(tmp_path / "shards" / "a.tar", list(content.items())))
    dataset = hr.open(sorted_tar(text, tmp_path))
    assert [int(each["label"]) for each in dataset] == list(range(300))


@pytest.mark.parametrize(
    "row", [WebDataset(members=("txt", "cls")), WebDataset(raw=("cls",)), WebDataset()]
)
def test_a_tar_that_is_not_sorted_says_so_whatever_was_asked(
    tmp_path: Path, row: WebDataset
) -> None:
    path = write(
        tmp_path / "s" / "a.tar", [(f"{i}.{k}", b"1") for k in ("txt", "cls") for i in "012"]
    )
    text = refusal(path, row)
    assert "not beside each other" in text
    assert len(hr.open(sorted_tar(text, tmp_path), format=row)) == 3


STRAYS = ["README.md", "LICENSE.txt", "info.json", "a.tar.idx", "d/notes.md"]


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("where", [0, 1, 3])
def test_a_file_beside_the_samples_is_left_out_as_advised(
    tmp_path: Path, stray: str, where: int
) -> None:
    samples = [sample("0" * n, "jpg", "cls") for n in (1, 2, 3)]
    samples.insert(where, [(stray, b"hi")])
    path = write(tmp_path / "s" / "a.tar", list(itertools.chain(*samples)))
    row = advised(refusal(path))
    assert set(row.members or ()) == {"jpg", "cls"}
    _, own = check_rows(path, row)
    assert [int(each["label"]) for each in own] == [1, 2, 3]


@pytest.mark.parametrize("where", [0, 1, 2])
def test_members_of_another_file_are_ignored(tmp_path: Path, where: int) -> None:
    samples = [[("0.txt", b"a")], [("1.txt", b"b")]]
    samples.insert(where, [("README.md", b"hi")])
    path = write(tmp_path / "s" / "a.tar", list(itertools.chain(*samples)))
    assert advised(refusal(path)) == WebDataset(members=("txt",))
    _, own = check_rows(path, WebDataset(members=("txt",)))
    assert [each["txt"] for each in own] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("shapes", "members", "count"),
    [
        (["jpg cls json", "jpg cls", "jpg cls json"], {"jpg", "cls"}, 3),
        (["jpg cls", "jpg cls json", "jpg cls"], {"jpg", "cls"}, 3),
        (["jpg cls json", "png cls", "webp cls json"], {"jpg", "png", "webp", "cls"}, 3),
        (["jpg seg.png cls", "png seg.png cls", "jpg cls"], {"jpg", "png", "cls"}, 3),
        (["jpg json", "json", "jpg json"], {"jpg"}, 2),
        (["txt", "cls", "txt"], {"txt"}, 2),
        (["jpg png cls", "jpg cls", "jpg cls"], {"jpg", "cls"}, 3),
        (["txt a b", "txt b", "txt a"], {"txt"}, 3),
    ],
)
def test_the_members_that_all_have_are_named(
    tmp_path: Path, shapes: list[str], members: set[str], count: int
) -> None:
    entries = [sample(f"{number}", *shape.split()) for number, shape in enumerate(shapes)]
    text = refusal(write(tmp_path / "s" / "a.tar", list(itertools.chain(*entries))))
    row = advised(text)
    assert set(row.members or ()) == members
    assert f"that {count} of its 3 samples have" in text
    assert len(check_rows(tmp_path / "s" / "a.tar", row)[1]) == count


def test_raw_stays_in_what_is_advised(tmp_path: Path) -> None:
    entries = [
        ("0.txt", b"a"),
        ("0.cls", b"dog"),
        ("1.txt", b"b"),
        ("1.cls", b"cat"),
        ("R.md", b""),
    ]
    path = write(tmp_path / "s" / "a.tar", entries)
    row = advised(refusal(path, WebDataset(raw=("cls",))))
    _, own = check_rows(path, row)
    assert [each["cls"] for each in own] == [b"dog", b"cat"]


def test_advice_leads_from_one_tar_to_the_next(tmp_path: Path) -> None:
    """Other members are missing in each: what is advised at last opens all."""
    for number, shape in enumerate(["jpg cls json", "jpg cls txt json", "jpg json", "jpg cls"]):
        entries = [sample(f"{i}", "jpg", "cls", "json") for i in range(2)]
        write(
            tmp_path / "s" / f"{number}.tar",
            [*itertools.chain(*entries), *sample("z", *shape.split())],
        )
    row: WebDataset | None = None
    for _ in range(4):
        try:
            dataset = hr.open(tmp_path / "s", format=row)
            break
        except errors.InvalidArgumentError as error:
            row = advised(str(error))
    assert (dataset.fields, len(dataset)) == (("image",), 12)


def test_tars_of_webdataset_with_a_file_added_open_as_advised(tmp_path: Path) -> None:
    script = tmp_path / "write.py"
    script.write_text(
        "import sys, webdataset as wds\n"
        "with wds.TarWriter(sys.argv[1] + '/a.tar') as sink:\n"
        "    for i in range(12):\n"
        "        sink.write({'__key__': f'{i:03}', 'txt': f't{i}', 'cls': i})\n"
    )
    write_with_packages(script, tmp_path, "webdataset")
    (tmp_path / "README.md").write_text("about")
    command = ["tar", "-rf", tmp_path / "a.tar", "-C", tmp_path, "README.md"]
    subprocess.run(command, check=True)
    _, own = check_rows(tmp_path / "a.tar", advised(refusal(tmp_path / "a.tar")))
    assert [int(each["label"]) for each in own] == list(range(12))


def test_all_members_without_bytes_are_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("0.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/data/0.txt"
        tar.addfile(info)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"is a link to '/data/0\.txt', which is no"
    ):
        hr.open(tmp_path / "a.tar")
