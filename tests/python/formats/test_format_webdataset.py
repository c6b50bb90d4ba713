"""Tar files of samples: `hr.formats.WebDataset`."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_damage, check_orders, check_rows, check_workers
from rank_scripts import real_packages

import headrace as hr
from headrace import errors
from headrace.formats import WebDataset
from headrace.formats._files.patterns import expand

Entry = tuple[str, bytes]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def entries(numbers: Iterable[int]) -> list[Entry]:
    found = []
    for i in numbers:
        found += [
            (f"train/{i:04}.jpg", bytes([i % 256]) * (100 * i + 1)),
            (f"train/{i:04}.cls", b"%d\n" % (i % 5)),
            (f"train/{i:04}.txt", f"Bild {i} ü".encode()),
            (f"train/{i:04}.box.npy", npy(np.full((2, 2), i, np.float32))),
        ]
    return found


def write_tar(path: Path, members: Iterable[Entry], format: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=str
)
def test_samples_are_those_of_tarfile(tmp_path: Path, format: int) -> None:
    path = write_tar(tmp_path / "a.tar", entries(range(30)), format)
    dataset, own = check_rows(path)
    assert dataset.fields == ("image", "label", "txt", "box_npy")
    assert dataset.kind("image") == "image"
    assert own[3]["label"] == 3
    assert dataset[7]["box_npy"].tolist() == [[7, 7], [7, 7]]
    assert [each.is_inline for each in dataset.index.fields] == [False, True, False, False]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=str)
def test_long_and_odd_names_are_read(tmp_path: Path, format: int) -> None:
    names = [
        "x" * 300,
        "ü/ä" * 40,
        "a.b/c d",
        os.fsdecode(b"\xff\xfe"),
        "\n",
        "s" * 99,
        "d/" * 60 + "k",
    ]
    members = [
        (f"{name}.{kind}", name.encode("utf-8", "surrogateescape"))
        for name in names
        for kind in ("txt", "json")
    ]
    dataset, own = check_rows(write_tar(tmp_path / "a.tar", members, format))
    assert len(own) == len(names)
    assert dataset[1]["txt"].decode() == names[1]


def test_folders_links_and_meta_members_are_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("dir", tarfile.DIRTYPE), ("l.txt", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "x"
            tar.addfile(info)
        for name in ("__index__/0.txt", "README", "dir/0.txt"):
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"hi"))
    with pytest.warns(RuntimeWarning, match=r"link to what is no file in its tar.*'l\.txt'"):
        _, own = check_rows(path)
    assert own == [{"txt": b"hi"}]


def test_a_pattern_and_a_folder_are_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(3):
        write_tar(
            tmp_path / f"shards/s-{number:02}.tar", entries(range(9 * number, 9 * number + 9))
        )
    _, pattern = check_rows(tmp_path / "shards/s-{00..02}.tar")
    _, folder = check_rows(tmp_path / "shards")
    assert len(pattern) == len(folder) == 27
    write_tar(tmp_path / "shards/s-03.tar", entries([40]))
    assert len(hr.open(tmp_path / "shards")) == 28
    with pytest.raises(errors.NotFoundError, match=r"reading .*s-04\.tar: no such file"):
        hr.open(tmp_path / "shards/s-{00..04}.tar")


def test_patterns_are_expanded_as_in_a_shell() -> None:
    def expanded(pattern: str) -> str:
        return " ".join(expand(pattern))

    assert expanded("/a-{8..11}.tar") == "/a-8.tar /a-9.tar /a-10.tar /a-11.tar"
    assert expanded("/{b,a}-{00..01}") == "/b-00 /b-01 /a-00 /a-01"
    assert expanded("/a-{1..0}{x}") == "/a-1{x} /a-0{x}"
    assert expanded("/a-{x}") == "/a-{x}"
    with pytest.raises(errors.InvalidArgumentError, match="more than 1,000,000 files"):
        expand("/{0..9999999999}")


def test_extensions_are_chosen_and_kept_as_bytes(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", entries(range(9)))
    dataset, _ = check_rows(path, WebDataset(members=("cls", "jpg")))
    assert set(dataset.fields) == {"label", "image"}
    dataset, own = check_rows(path, WebDataset(raw=("cls", "box.npy", "jpg")))
    assert set(dataset.fields) == {"jpg", "cls", "txt", "box.npy"}
    assert own[1]["cls"] == b"1\n"


def gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def gz_entries(numbers: Iterable[int]) -> list[Entry]:
    found = []
    for i in numbers:
        found += [
            (f"k/{i:04}.txt.gz", gz(f"Bild {i} ü".encode() * i)),
            (f"k/{i:04}.x.npy.gz", gz(npy(np.full((40, 2), i, np.float32)))),
            (f"k/{i:04}.jpg.gz", gz(bytes([i % 256]) * (100 * i + 1))),
            (f"k/{i:04}.json", b'{"id": %d}' % i),
        ]
    return found


@pytest.mark.parametrize("size", [0, 100_000])
def test_gz_members_are_decompressed(tmp_path: Path, size: int) -> None:
    members = gz_entries(range(60))
    more = [(f"k/{i:04}.bin.gz", gz(os.urandom(size))) for i in range(60)]
    members = [each for i in range(60) for each in (*members[4 * i : 4 * i + 4], more[i])]
    dataset, own = check_rows(write_tar(tmp_path / "a.tar", members))
    assert dataset.fields == ("jpg_gz", "x_npy_gz", "bin_gz", "txt_gz", "json")
    assert [each.coding for each in dataset.index.fields] == [
        "gzip", "gzip", "gzip", "stored", "gzip"
    ]  # fmt: skip
    assert dataset.kind("jpg_gz") == "image"
    assert dataset[7]["x_npy_gz"].tolist() == [[7, 7]] * 40
    assert dataset[2]["txt_gz"].decode() == "Bild 2 üBild 2 ü"
    dataset, own = check_rows(
        tmp_path / "a.tar", WebDataset(members=("txt.gz", "x.npy.gz", "json", "bin.gz"))
    )
    check_orders(dataset, own, tmp_path)


def test_workers_get_gz_members(tmp_path: Path) -> None:
    dataset, own = check_rows(
        write_tar(tmp_path / "a.tar", gz_entries(range(20))),
        WebDataset(members=("txt.gz", "x.npy.gz")),
    )
    check_workers(dataset, own)


def test_gz_members_are_kept_as_they_are_with_raw(tmp_path: Path) -> None:
    row = WebDataset(raw=("txt.gz", "x.npy.gz"))
    dataset, _ = check_rows(write_tar(tmp_path / "a.tar", gz_entries(range(4))), row)
    assert gzip.decompress(dataset[3]["txt.gz"]).decode().startswith("Bild 3")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("txt.gz", b"short", r"txt\.gz from byte \d+\): 5 bytes, a gzip file has 18 at least"),
        ("txt.gz", bytes(40) + b"\xff\xff\xff\xff", "4,294,967,295 bytes, but 44 bytes of gzip"),
        (
            "x.npy.gz",
            b"no gzip" * 9 + bytes(4),
            "it is no gzip file, or damaged: .*incorrect header",
        ),
        ("x.npy.gz", gz(b"no npy"), "not a .npy file"),
        ("x.npy.gz", gz(npy(np.zeros((40, 3), np.float32))), r"is float32 \[40, 3\], that of"),
        (
            "x.npy.gz",
            gz(npy(np.zeros((40, 2), np.float32))[:-4]),
            "need 448 bytes, the file has 444",
        ),
    ],
)
def test_gz_members_that_cannot_be_are_refused(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    members = gz_entries(range(3))
    members[4:8] = [(key, data if key.endswith(name) else each) for key, each in members[4:8]]
    path = write_tar(tmp_path / "a.tar", members)
    with pytest.raises(errors.HeadraceError, match=message) as caught:
        hr.open(path)
    assert str(path) in str(caught.value)


def test_headers_of_npy_gz_that_differ_are_refused(tmp_path: Path) -> None:
    array = np.zeros((40, 2), np.float32)
    text = str({"descr": "<f4", "fortran_order": False, "shape": (40, 2)})
    header = b"\x93NUMPY\x01\x00" + (182).to_bytes(2, "little") + text.ljust(181).encode() + b"\n"
    members = [("0.npy.gz", gz(npy(array))), ("1.npy.gz", gz(header + array.tobytes()))]
    with pytest.raises(
        errors.InvalidArgumentError, match="has 192 bytes, that of the first sample"
    ):
        hr.open(write_tar(tmp_path / "a.tar", members))


def test_gz_members_of_several_parts_are_an_error_when_they_are_read(tmp_path: Path) -> None:
    members = [("0.txt.gz", gz(b"abc" * 50) + gz(b"defg"))]
    path = write_tar(tmp_path / "a.tar", members)
    with pytest.raises(errors.DataLossError, match=r"a\.tar bytes .*gzip: it dec.* says 4;"):
        hr.open(path)[0]


def test_damaged_gz_members_are_errors_that_name_the_file(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "damaged.tar", gz_entries(range(3)))
    with tarfile.open(path) as tar:
        bodies = [
            at
            for member in tar
            for at in range(member.offset_data, member.offset_data + member.size)
        ]
    refused = check_damage([path], lambda: hr.open(path), lambda size: bodies, rounds=400)
    assert refused > 250


def test_images_of_several_kinds_are_one_field(tmp_path: Path) -> None:
    members = [(f"{i}.{'png' if i % 3 else 'jpg'}", bytes([i])) for i in range(9)]
    _, own = check_rows(write_tar(tmp_path / "a.tar", members))
    assert [each["image"] for each in own] == [bytes([i]) for i in range(9)]


def test_every_order_with_tiers_and_resumes(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / f"s{number}.tar", entries(range(20 * number, 20 * number + 20)))
    dataset, own = check_rows(tmp_path / "s{0..2}.tar", WebDataset(raw=("jpg",)))
    check_orders(dataset, own, tmp_path)


def test_workers_get_members(tmp_path: Path) -> None:
    dataset, own = check_rows(
        write_tar(tmp_path / "a.tar", entries(range(20))), WebDataset(members=("cls", "box.npy"))
    )
    check_workers(dataset, own)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop(5), r"byte \d+: sample 'train/0001' has no \.cls; the first sample has"),
        (lambda m: m.insert(5, ("train/0001.json", b"{}")), r"'train/0001' has \.json, too"),
        (lambda m: m.insert(5, ("train/0001.jpg", b"x")), r"'train/0001' has two members \.jpg"),
        (lambda m: m.__setitem__(5, ("train/0001.cls", b"dog")), r"0001\.cls' is no whole number"),
        (lambda m: m.__setitem__(5, ("train/0001.cls", b"9" * 19)), "no whole number of 64 bits"),
        (lambda m: m.__setitem__(7, ("train/0001.box.npy", npy(np.zeros(3)))), r"is float64 \[3\]"),
        (lambda m: m.__setitem__(7, ("train/0001.box.npy", b"no")), "byte 0: not a .npy file"),
        (lambda m: m.clear(), "it holds no samples"),
    ],
)
def test_samples_that_differ_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    members = entries(range(4))
    change(members)
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(write_tar(tmp_path / "a.tar", members))


def test_members_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", entries(range(4)))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"has members jpg, cls, txt, box\.npy, and no sample of "
    ):
        hr.open(path, format=WebDataset(members=("mp3",)))


@pytest.mark.parametrize("tool", ["gunzip", "unzstd"])
def test_compressed_tars_are_refused_with_the_remedy(tmp_path: Path, tool: str) -> None:
    data = write_tar(tmp_path / "a.tar", entries(range(4))).read_bytes()
    path = tmp_path / ("a.tar.gz" if tool == "gunzip" else "a.tar.zst")
    path.write_bytes(gzip.compress(data) if tool == "gunzip" else b"\x28\xb5\x2f\xfd" + bytes(600))
    with pytest.raises(errors.InvalidArgumentError, match=f"decompress it once with {tool}: im"):
        hr.open(path)


def test_a_tar_without_its_end_and_joined_tars_are_refused(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "a.tar", entries(range(4))).read_bytes()
    cut = whole[: whole.rstrip(b"\0").__len__() // 512 * 512 + 512]
    (tmp_path / "a.tar").write_bytes(cut)
    with pytest.raises(
        errors.DataLossError, match=r"a\.tar: byte \d+: cut short: there is no end m"
    ):
        hr.open(tmp_path / "a.tar")
    (tmp_path / "a.tar").write_bytes(whole + whole)
    with pytest.raises(
        errors.DataLossError, match="the end mark, but not the end: tars were joine"
    ):
        hr.open(tmp_path / "a.tar")


def test_numbers_in_base_256_are_read(tmp_path: Path) -> None:
    data = bytearray(write_tar(tmp_path / "a.tar", [("a.txt", b"hello")]).read_bytes())
    data[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header = bytes(data[:148]) + b" " * 8 + bytes(data[156:512])
    data[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(data)
    assert check_rows(tmp_path / "a.tar")[1] == [{"txt": b"hello"}]


def test_bodies_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tar(tmp_path / "a.tar", [(f"{i}.jpg", bytes(200_000)) for i in range(20)])
    taken = 0
    pread = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        nonlocal taken
        data = pread(fd, size, offset)
        taken += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    hr.open(path)
    assert taken < 150_000  # Of 4 MB: headers, and the first read ahead.


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "damaged.tar", entries(range(4)), tarfile.PAX_FORMAT)
    with tarfile.open(path) as tar:
        starts = [member.offset for member in tar]

    def headers(size: int) -> list[int]:
        return [at for start in starts for at in range(start, min(start + 512, size))]

    refused = check_damage([path], lambda: hr.open(path), headers, rounds=400)
    assert refused > 320  # An insertion behind the end, or the same byte again, is no damage.


# webdataset itself.

PROGRAM = """
import json, pickle, sys
import numpy as np, webdataset as wds
folder = sys.argv[1]
with wds.ShardWriter(folder + "/w-%02d.tar", maxcount=8, verbose=0) as sink:
    for i in range(20):
        sink.write({"__key__": f"k/{i:05}", "jpg": bytes([i]) * i, "cls": i % 4, "txt": f"ü{i}",
                    "json": {"id": i}, "box.npy": np.full((2, 3), i),
                    "a.txt.gz": f"ü{i}" * i, "b.npy.gz": np.full((9, 3), i)})
rows = [{k: v for k, v in row.items() if not k.startswith("__")}
        for row in wds.WebDataset(folder + "/w-{00..02}.tar", shardshuffle=False)]
names = ["a.txt.gz", "b.npy.gz"]
again = wds.WebDataset(folder + "/w-{00..02}.tar", shardshuffle=False).decode(only=names)
for row, each in zip(rows, again):
    row.update({name: each[name] for name in names})
pickle.dump(rows, open(folder + "/rows", "wb"))
"""


@pytest.fixture(scope="module")
def packages() -> list[str]:
    """Folders of packages; made before a test has a cache of its own."""
    return [str(real_packages(name)) for name in ("loaders", "trainers")]


def test_tars_of_webdataset_are_read_as_it_reads_them(packages: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    rows = pickle.loads((tmp_path / "out" / "rows").read_bytes())
    dataset, own = check_rows(tmp_path / "out" / "w-{00..02}.tar")
    assert len(own) == len(rows) == 20
    for mine, theirs in zip(dataset, rows, strict=True):
        assert mine["image"] == theirs["jpg"]
        assert mine["label"] == int(theirs["cls"])
        assert mine["txt"] == theirs["txt"]
        assert json.loads(mine["json"]) == json.loads(theirs["json"])
        assert np.array_equal(mine["box_npy"], np.load(io.BytesIO(theirs["box.npy"])))
        assert mine["a_txt_gz"].decode() == theirs["a.txt.gz"]
        assert np.array_equal(mine["b_npy_gz"], theirs["b.npy.gz"])
