"""Parquet: processes that decode row groups; files that are damaged."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from format_checks import check_batch, check_rows, loader_of
from own_readers import own_samples
from parquet_files import PLAIN, every_kind, flat, write

import headrace as hr
from headrace import errors
from headrace.formats import Parquet
from headrace.formats import _row_group_reader as reader
from headrace.formats._parquet import thrift


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps readers of this process alive, as their start is most of the time of a small test."""
    path = write(tmp_path_factory.mktemp("kept") / "a.parquet", {"t": ["x"]})
    reader = hr.open(path, index=path.with_suffix(".hri")).stored_reader()
    yield
    reader.close()


# Readers.


def reader_pids(parent: int) -> list[int]:
    """Processes of readers that a process started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (each / "status").read_text()
            command = (each / "cmdline").read_bytes()
            is_alive = re.search(r"^State:\t[^Z]", status, re.MULTILINE) is not None
            if f"\nPPid:\t{parent}\n" in status and is_alive and b"group-reader\0" in command:
                found.append(int(each.name))
    return found


def test_readers_that_are_killed_are_replaced(tmp_path: Path, readers: None) -> None:
    """The data are larger than the budget, so that row groups are left when readers are killed."""
    draw = random.Random(1)
    blobs = {"blob": [draw.randbytes(100_000) for _ in range(300)]}
    dataset, own = check_rows(write(tmp_path / "a.parquet", blobs, row_group_size=2))
    seen = []
    killed: set[int] = set()
    with loader_of(dataset, "exact", memory="12MiB") as loader:
        for step, batch in enumerate(loader):
            seen += check_batch(batch, own, dataset.fields)
            if step == 2:
                killed |= set(reader_pids(os.getpid()))
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
        assert loader.stats()["io"]["failures"] == 0
    assert sorted(seen) == list(range(300))
    assert killed
    assert set(reader_pids(os.getpid())) - killed


LOADS = """
import sys
import headrace as hr
loader = hr.Loader(sys.argv[1], 4, order="epoch", memory="64MiB", output="numpy")
next(iter(loader))
print("reads", flush=True)
sys.stdin.readline()
loader.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def test_no_reader_outlives_the_loader_or_a_parent_that_is_killed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", every_kind(60), row_group_size=2)
    for kills in (False, True):
        program = [sys.executable, "-W", "ignore", "-c", LOADS, str(path)]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            assert parent.stdin is not None
            assert parent.stdout.readline() == b"reads\n"
            pids = reader_pids(parent.pid)
            assert pids
            watched = [os.pidfd_open(pid) for pid in pids]
            if kills:
                parent.kill()
            else:
                parent.stdin.write(b"\n")
                parent.stdin.flush()
                assert parent.stdout.readline() == b"closed\n"
                assert reader_pids(parent.pid) == []
        for each in watched:
            assert select.select([each], [], [], 30)[0]
            os.close(each)


def test_a_file_that_changed_is_an_error_that_names_it(tmp_path: Path, readers: None) -> None:
    path = write(tmp_path / "a.parquet", every_kind(4))
    dataset = hr.open(path)
    write(path, every_kind(5))
    with pytest.raises(errors.FailedPreconditionError, match=rf"{path} .*file changed since"):
        dataset.read(1)


def test_a_group_of_another_size_is_data_loss(tmp_path: Path, readers: None) -> None:
    path = write(tmp_path / "a.parquet", {"t": ["ab" * 30] * 9}, compression="none")
    state = path.stat()
    dataset = hr.open(path)
    write(path, {"t": ["ab" * 29 + "a"] * 9}, compression="none")
    path.write_bytes(path.read_bytes()[: state.st_size].ljust(state.st_size))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(errors.DataLossError, match=str(path)):
        dataset.read(0)


def request(*words: str) -> bytes:
    """As a store asks; of a local file its size and its time are not compared here."""
    encoded = (word.encode() for word in words)
    return b"".join(len(x).to_bytes(4, "little") + x for x in encoded) + bytes(16)


def test_requests_of_no_sense_are_answered_by_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"t": ["ab"]})

    def code(name: str, file: str, part: str, size: int = 2) -> int:
        return reader.answered(request(name, file, part), memoryview(bytearray(size)))[8]

    good = "%5B0%2C%5B%22t%22%5D%5D"
    assert code("parquet", str(path), good) == 0
    assert code("parquet", str(path), good, 1) == 0  # the store sees that it is another size
    for part in ("", "x", "%5B%5D", "%5B0%2C%5B3%5D%5D", good.replace("0", "7", 1), "%7B%7D"):
        assert code("parquet", str(path), part) == 15, part
    assert code("parquet", str(path), good.replace("t", "u")) == 3
    assert code("parquet", str(tmp_path / "b.parquet"), good) == 5
    assert code("tokens", str(path), good) == 3
    assert code("none", str(path), good) == 3
    assert reader.answered(b"\xff\xff\xff\xff", memoryview(bytearray(2)))[8] == 13


# Damage.


@pytest.mark.parametrize("plain_pages", [False, True])
def test_damage_is_refused_by_name_or_read_as_pyarrow_reads_it(
    tmp_path: Path, plain_pages: bool
) -> None:
    """Indexing decodes everything; a reader then decodes the same, to the same size."""
    path = tmp_path / "damaged.parquet"
    table = flat(12) if plain_pages else every_kind(12).drop_columns(["image", "half", "day"])
    draw = random.Random(3)
    refusals = []
    for number in range(400):
        options: dict[str, Any] = PLAIN if plain_pages else {
            "compression": ["snappy", "none", "zstd"][number % 3],
            "use_dictionary": number % 2 == 0,
        }  # fmt: skip
        page = ["1.0", "2.0"][number // 2 % 2]
        data = bytearray(
            write(path, table, **options, row_group_size=6, data_page_version=page).read_bytes()
        )
        if number % 5 == 0:
            data = data[: draw.randrange(len(data))]
        elif number % 5 == 1:
            at = draw.randrange(len(data))
            data[at:at] = draw.randbytes(draw.randrange(1, 20))
        else:
            footer = len(data) - int.from_bytes(data[-8:-4], "little") - 8
            at = draw.randrange(footer if number % 5 == 2 else 4, len(data))
            data[at] = draw.choice([0, 255, 0x80, draw.randrange(256)])
        path.write_bytes(data)
        try:
            dataset = hr.open(path)
            check_places(path, dataset)
        except (errors.DataLossError, errors.InvalidArgumentError) as error:
            refusals.append(str(error))
    assert all(path.stem in each for each in refusals)
    assert len(refusals) > 200


def test_no_byte_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """What it says of columns, which pyarrow's RowGroupMetaData.column() does not survive."""
    path = tmp_path / "a.parquet"
    for plain in (True, False):
        options = PLAIN if plain else {"compression": "zstd"}
        good = write(path, flat(6), **options, store_schema=False).read_bytes()
        footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
        data = good[footer:-8]
        assert list(thrift.structs_in(data, 4, 1)) == thrift.read_struct(data)[0][4][0][1]
        name = footer + data.index(b"blob")  # of a column in the schema, behind its type
        draw = random.Random(8)
        changes = [(at, 1 << bit) for at in range(name - 6, name) for bit in range(8)]
        changes += [(draw.randrange(footer, len(good)), 1 << draw.randrange(8)) for _ in range(52)]
        for number, (at, bit) in enumerate(changes):
            changed = bytearray(good)
            changed[at] ^= bit
            (tmp_path / f"{plain}-{number}.parquet").write_bytes(changed)
    path.unlink()
    done = subprocess.run(
        [sys.executable, "-c", OPEN_ALL, str(tmp_path)], capture_output=True, text=True, timeout=280
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    refused = [each for each in said if not each.startswith("good: ")]
    assert len(said) == 200
    assert len(refused) > 50


OPEN_ALL = """
import pathlib, sys
import headrace as hr

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.parquet")):
    try:
        print("good:", len(hr.open(path)), flush=True)
    except hr.errors.HeadraceError as error:
        assert path.name in str(error), error
        print(str(error).replace("\\n", " "), flush=True)
"""


def check_places(path: Path, dataset: hr.Dataset) -> None:
    """Row groups decode to the sizes of the index; plain values are those that pyarrow reads."""
    if dataset.index.root.startswith("/"):
        for mine, own in zip(dataset, own_samples(Parquet(), str(path)), strict=True):
            for name in ("blob", "code", "image"):
                assert name not in own or mine[name] == own[name]
        return
    for number in range(dataset.index.object_count):
        name, size = dataset.index.object(number)[:2]
        part = name.partition("/")[0].split(":", 2)[2]
        into = memoryview(bytearray(size))
        assert Parquet().decode_group(str(path), part, into) == size


def test_structs_of_thrift_are_read_or_refused() -> None:
    good = bytes.fromhex("1500152c1520" + "2c150a150015061506" + "0000")
    assert thrift.read_struct(good)[0] == {
        1: 0, 2: 22, 3: 16, 5: {1: 5, 2: 0, 3: 3, 4: 3},
    }  # fmt: skip
    for size in range(len(good)):
        with pytest.raises(thrift.TruncatedError):
            thrift.read_struct(good[:size])
    draw = random.Random(9)
    for _ in range(5000):
        data = bytearray(good + draw.randbytes(9))
        for _ in range(draw.randrange(1, 5)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        with contextlib.suppress(thrift.TruncatedError, thrift.MalformedError):
            thrift.read_struct(bytes(data))
    for bad in (b"\x1c" * 50, b"\x15" + b"\xff" * 11, b"\x1b\x00", b"\x19" + b"\x19" * 50):
        with pytest.raises(thrift.MalformedError):
            thrift.read_struct(bad)
