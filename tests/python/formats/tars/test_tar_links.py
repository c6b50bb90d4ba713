"""Links, pipes and keys that occur twice in tars: their bytes, a finding, or one clear line."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
from format_checks import check_orders, check_rows, write_with_packages

import headrace as hr
from headrace import errors
from headrace.pack import PackParameters, write_pack

Entry = tuple[str, bytes | str]
"""A name, and bytes; or what it links to: "=x" hard, "->x" by name; or "|", a pipe."""

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
KINDS = {"=": tarfile.LNKTYPE, "-": tarfile.SYMTYPE, "|": tarfile.FIFOTYPE}


def write(path: Path, entries: Sequence[Entry], format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as tar:
        for name, what in entries:
            info = tarfile.TarInfo(name)
            if isinstance(what, str):
                info.type, info.linkname = KINDS[what[0]], what.lstrip("=->|")
                tar.addfile(info)
            else:
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
    return path


def gnu_tar(*arguments: object) -> None:
    command = ["tar", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def texts(dataset: hr.Dataset, field: str = "txt") -> list[bytes]:
    return [bytes(sample[field]) for sample in dataset]


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_hard_link_has_the_bytes_of_its_target(tmp_path: Path, format: int) -> None:
    long = "d" * 90 + "/" + "n" * 90
    entries: list[Entry] = [("0.txt", b"zero"), ("0.cls", b"7")]
    entries += [("1.txt", "=0.txt"), ("1.cls", "=0.cls"), ("2.txt", "=1.txt"), ("2.cls", b"9")]
    if format != tarfile.USTAR_FORMAT:  # Its names of links have 100 bytes.
        entries += [(f"{long}.txt", b"long"), (f"{long}.cls", b"1")]
        entries += [(f"{long}-2.txt", f"={long}.txt"), (f"{long}-2.cls", "=2.cls")]
    dataset, own = check_rows(write(tmp_path / "a.tar", entries, format))
    assert [int(each["label"]) for each in own[:3]] == [7, 7, 9]
    assert texts(dataset)[:3] == [b"zero"] * 3
    assert format == tarfile.USTAR_FORMAT or texts(dataset)[3:] == [b"long", b"long"]
    assert dataset.report == ()


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
@pytest.mark.parametrize("name", [".", "data", "./data/../data"])
def test_hard_links_of_gnu_tar_are_read(form: str, name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(40):
        for kind in ("bin", "txt"):
            file = data / f"{number:03}.{kind}"
            if number % 4 == 3:
                os.link(data / f"{number - 2:03}.{kind}", file)
            else:
                file.write_bytes(b"%d" % number * (300 * number + 1))
    where = data if name == "." else tmp_path
    gnu_tar(
        "-c", "-P", "-f", tmp_path / "a.tar", f"--format={form}", "--sort=name", "-C", where, name
    )
    dataset, own = check_rows(tmp_path / "a.tar")
    assert len(own) == 40
    for number, sample in enumerate(own):
        assert sample["txt"] == (data / f"{number:03}.txt").read_bytes()
    assert dataset.report == ()


def test_links_lead_to_what_a_program_would_find_that_extracts_the_tar(tmp_path: Path) -> None:
    entries: list[Entry] = [
        ("d/0.txt", b"first"),
        ("d/1.txt", "->0.txt"),
        ("d/2.txt", "->../e/0.txt"),  # Behind it.
        ("d/3.txt", "->1.txt"),  # A chain.
        ("d/4.txt", "=d/3.txt"),
        ("./d//5.txt", "->./../d/0.txt"),
        ("e/0.txt", b"other"),
    ]
    dataset, _ = check_rows(write(tmp_path / "a.tar", entries))
    shutil.unpack_archive(tmp_path / "a.tar", tmp_path / "out", filter="fully_trusted")
    files = [tmp_path / "out" / name for name, _ in entries]
    assert texts(dataset) == [file.read_bytes() for file in files]
    assert dataset.report == ()


def test_a_hard_link_is_one_with_the_file_that_came_before_it(tmp_path: Path) -> None:
    entries: list[Entry] = [
        ("0.txt", b"old"), ("1.txt", "=0.txt"), ("0.txt", b"new"), ("2.txt", "=0.txt"),
        ("3.txt", "->0.txt"),
    ]  # fmt: skip
    dataset, _ = check_rows(write(tmp_path / "a.tar", entries))
    assert texts(dataset) == [b"old", b"old", b"new", b"new", b"new"]
    (finding,) = dataset.report
    assert (finding.kind, finding.count, finding.examples) == ("tar_twice", 1, ("0",))
    assert str(finding).startswith("1 sample with a key that an earlier one of its tar has")


def test_tars_to_which_gnu_tar_appended_a_sample_again_say_so(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_bytes(b"%d" % number)
    names = sorted(each.name for each in tmp_path.glob("*.txt"))
    gnu_tar("-c", "-f", tmp_path / "a.tar", "-C", tmp_path, *names)
    (tmp_path / "07.txt").write_bytes(b"again")
    gnu_tar("-r", "-f", tmp_path / "a.tar", "-C", tmp_path, "07.txt")
    dataset = hr.open(tmp_path / "a.tar")
    assert texts(dataset) == [*(b"%d" % number for number in range(30)), b"again"]
    assert [(each.kind, each.examples) for each in dataset.report] == [("tar_twice", ("07",))]


@pytest.mark.parametrize(
    ("name", "what", "kind", "why"),
    [
        ("1.txt", "->/etc/hostname", "tar_link", "1 link to what is no file in its tar, left out"),
        ("1.txt", "->../0.txt", "tar_link", "'1.txt'"),
        ("1.txt", "->1.txt", "tar_link", "'1.txt'"),
        ("1.txt", "=../other/1.txt", "tar_link", "'1.txt'"),  # Of a folder that two tars divide.
        ("1.txt", "=2.txt", "tar_link", "'1.txt'"),  # Behind it: nothing to be one with.
        ("1.txt", "|", "tar_special", "1 pipe or device in a tar, left out: '1.txt'"),
    ],
)
def test_what_has_no_bytes_in_the_tar_is_a_finding(
    tmp_path: Path, name: str, what: str, kind: str, why: str
) -> None:
    path = write(tmp_path / "a.tar", [("0.txt", b"0"), (name, what), ("2.txt", b"2")])
    with pytest.warns(RuntimeWarning, match=r"tar --dereference --hard-dereference") as warned:
        dataset = hr.open(path)
    assert why in str(warned[0].message)
    assert str(path) in str(warned[0].message)
    assert texts(dataset) == [b"0", b"2"]
    assert [(each.kind, each.count, each.examples) for each in dataset.report] == [
        (kind, 1, (name,))
    ]
    assert hr.open(path).report == dataset.report  # From the index that was kept.


def test_a_sample_of_which_a_part_lies_outside_is_refused(tmp_path: Path) -> None:
    """The remedy is typed as the message has it."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "shared.json").write_bytes(b"{}")
    for number in range(3):
        (data / f"{number}.txt").write_bytes(b"%d" % number)
        (data / f"{number}.json").write_bytes(b"[]")
    (data / "1.json").unlink()
    (data / "1.json").symlink_to("../shared.json")
    gnu_tar("-c", "-f", tmp_path / "a.tar", "--sort=name", "-C", data, ".")
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(tmp_path / "a.tar")
    text = str(caught.value)
    assert re.search(
        r"a\.tar: byte \d+: of sample '\./1' '\./1\.json' is a link to '\.\./shared\.json', "
        r"which is no file in this tar; write the tar with `tar --dereference",
        text,
    )
    options = re.findall(r"`tar (.*?)`", text)[0].split()
    gnu_tar(*options, "-c", "-f", tmp_path / "a.tar", "--sort=name", "-C", data, ".")
    assert texts(hr.open(tmp_path / "a.tar"), "json") == [b"[]", b"{}", b"[]"]


def test_links_that_are_no_parts_of_samples_are_no_findings(tmp_path: Path) -> None:
    entries: list[Entry] = [
        ("d/0.txt", b"0"), ("README", "->/x"), ("link.dir", "->d"), ("__m__/0.txt", "->/x"),
    ]  # fmt: skip
    dataset, _ = check_rows(write(tmp_path / "a.tar", entries))
    assert dataset.report == ()
    entries = [("0.txt", b"0"), ("0.json", "->/x"), ("1.txt", b"1"), ("1.json", "->/x")]
    dataset = hr.open(
        write(tmp_path / "b.tar", entries), format=hr.formats.WebDataset(members=("txt",))
    )
    assert (texts(dataset), dataset.report) == ([b"0", b"1"], ())


def test_sizes_of_links_are_no_bytes_unless_bytes_follow(tmp_path: Path) -> None:
    """Some writers give a link the size of its target; in pax bytes may follow it."""
    path = write(tmp_path / "a.tar", [("0.txt", b"zero"), ("1.txt", "=0.txt"), ("2.txt", b"two")])
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        at = tar.getmember("1.txt").offset
    data[at + 124 : at + 136] = b"00000000004\0"
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    path.write_bytes(data)
    assert texts(hr.open(path)) == [b"zero", b"zero", b"two"]
    path.write_bytes(data[: at + 512] + b"body" + bytes(508) + data[at + 512 :])
    assert texts(hr.open(path)) == [b"zero", b"body", b"two"]


def test_findings_of_several_tars_are_added_up(tmp_path: Path) -> None:
    for number in range(3):
        entries: list[Entry] = [("0.txt", b"0"), ("1.txt", "->/x"), ("2.txt", "=0.txt")]
        write(tmp_path / f"s{number}.tar", entries)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dataset = hr.open(tmp_path / "s*.tar")
    assert len(warned) == 1
    assert [(each.kind, each.count) for each in dataset.report] == [("tar_link", 3)]
    assert texts(dataset) == [b"0", b"0"] * 3


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_sparse_members_are_refused_and_the_remedy_helps(form: str, tmp_path: Path) -> None:
    with open(tmp_path / "0.bin", "wb") as file:
        file.write(b"begin")
        file.truncate(2**20)
    arguments = ["-c", "-f", tmp_path / "a.tar", f"--format={form}", "-C", tmp_path, "0.bin"]
    gnu_tar("--sparse", *arguments)
    with pytest.raises(errors.InvalidArgumentError, match="without --sparse"):
        hr.open(tmp_path / "a.tar")
    gnu_tar(*arguments)
    assert texts(hr.open(tmp_path / "a.tar"), "bin") == [(tmp_path / "0.bin").read_bytes()]


def test_the_links_of_a_folder_that_webdataset_wrote_and_hard_links_joined(tmp_path: Path) -> None:
    """webdataset's TarWriter, whose samples then are one file each where their bytes are equal."""
    script = tmp_path / "write.py"
    script.write_text(
        "import sys, webdataset as wds\n"
        "with wds.TarWriter(sys.argv[1] + '/a.tar') as sink:\n"
        "    for i in range(12):\n"
        "        sink.write({'__key__': f'{i:03}', 'txt': f't{i % 3}', 'cls': i % 3})\n"
    )
    write_with_packages(script, tmp_path, "webdataset")
    whole = hr.open(tmp_path / "a.tar")
    data = tmp_path / "data"
    shutil.unpack_archive(tmp_path / "a.tar", data, filter="data")
    first: dict[bytes, Path] = {}
    for file in sorted(data.iterdir()):
        before = first.setdefault(file.suffix.encode() + file.read_bytes(), file)
        if before != file:
            file.unlink()
            os.link(before, file)
    gnu_tar("-c", "-f", tmp_path / "b.tar", "--sort=name", "-C", data, ".")
    assert os.path.getsize(tmp_path / "b.tar") < os.path.getsize(tmp_path / "a.tar")
    joined = hr.open(tmp_path / "b.tar")
    assert len(joined) == len(whole) == 12
    for mine, theirs in zip(joined, whole, strict=True):
        assert (bytes(mine["txt"]), mine["label"]) == (bytes(theirs["txt"]), theirs["label"])


def test_links_are_read_in_every_order_and_packed(tmp_path: Path) -> None:
    entries: list[Entry] = []
    for number in range(40):
        target = f"{number * 7 % 10:02}.txt"
        entries.append((f"{number:02}.txt", b"%d" % number * 90 if number < 10 else f"={target}"))
    dataset, own = check_rows(write(tmp_path / "a.tar", entries))
    check_orders(dataset, own, tmp_path)
    write_pack(dataset, tmp_path / "pack", PackParameters(order="source"))
    assert texts(hr.open(tmp_path / "pack")) == texts(dataset)
