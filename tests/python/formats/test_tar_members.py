"""Headers of tars that the core reads give what Python's reader gives, also where they are odd."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from headrace import errors
from headrace.formats._tars.tar import Member, TarReader, open_tar

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def write(path: Path, draw: random.Random) -> None:
    """Members of all sorts; most are plain."""
    with tarfile.open(path, "w", format=draw.choice(FORMATS)) as tar:
        for number in range(draw.randrange(40)):
            info = tarfile.TarInfo(f"folder/{number}.jpg")
            info.size = draw.choice([0, 1, 511, 512, 513, 3000, 20_000, 70_000])
            kind = draw.randrange(20)
            if kind == 0:
                info.name = f"{'long/' * 30}{number}.jpg"
            elif kind == 1:
                info.name = f"ü{number}.jpg"
            elif kind == 2:
                info.type, info.size = tarfile.DIRTYPE, 0
            elif kind == 3:
                info.type, info.size, info.linkname = tarfile.SYMTYPE, 0, "x"
            elif kind < 10:
                info.mtime = 1234.5  # type: ignore[assignment]  # A header of its own in pax.
            tar.addfile(info, io.BytesIO(draw.randbytes(info.size)))


def members(reader: TarReader) -> tuple[list[Member], str]:
    """All, and the error that follows."""
    found: list[Member] = []
    try:
        for each in reader:
            found.append(each)
    except (errors.DataLossError, errors.InvalidArgumentError) as error:
        return found, str(error)
    return found, ""


def by_python(path: Path) -> tuple[list[Member], str]:
    data = path.read_bytes()
    reader = TarReader(lambda offset, size: data[offset : offset + size], len(data), str(path))
    return members(reader)


def by_core(path: Path) -> tuple[list[Member], str]:
    with open_tar(str(path)) as reader:
        return members(reader)


def test_members_are_those_of_python_and_of_tarfile(tmp_path: Path) -> None:
    draw = random.Random(5)
    path = tmp_path / "a.tar"
    for _ in range(120):
        write(path, draw)
        found = by_core(path)
        assert found == by_python(path)
        assert found[1] == ""
        with tarfile.open(path) as tar:
            own = [Member(each.name, each.offset_data, each.size) for each in tar if each.isreg()]
        assert [each for each in found[0] if not each.missing] == own


def test_damage_is_seen_as_by_python(tmp_path: Path) -> None:
    draw = random.Random(6)
    path = tmp_path / "a.tar"
    refused = 0
    for _ in range(60):
        write(path, draw)
        good = path.read_bytes()
        for _ in range(25):
            data = bytearray(good)
            if draw.random() < 0.2:
                data = data[: draw.randrange(len(data))]
            else:
                for _ in range(draw.randrange(1, 4)):
                    at = draw.randrange(len(data) // 512) * 512 + draw.randrange(512)
                    data[at] = draw.choice([0, 0x80, 0xFF, ord("7"), ord(" "), draw.randrange(256)])
            path.write_bytes(data)
            found = by_core(path)
            assert found == by_python(path)
            refused += found[1] != ""
    assert refused > 100


@pytest.mark.parametrize("format", ["v7", "ustar", "gnu", "oldgnu", "posix"])
def test_tars_of_gnu_tar_are_read(format: str, tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    for number in range(300):
        (tmp_path / "data" / "sub" / f"{number}.jpg").write_bytes(b"x" * (97 * number))
    path = tmp_path / "a.tar"
    command = ["tar", "cf", path, f"--format={format}", "-C", tmp_path, "data"]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no GNU tar")
    found = by_core(path)
    assert found == by_python(path)
    assert len(found[0]) == 300
    for member in found[0]:
        with open(path, "rb") as file:
            file.seek(member.offset)
            assert file.read(member.size) == (tmp_path / member.name).read_bytes()


def test_members_behind_odd_ones_are_left_to_the_core_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(1000):
            info = tarfile.TarInfo(f"{'long/' * 30 if number == 500 else ''}{number}")
            tar.addfile(info, io.BytesIO())
    headers = 0
    real = TarReader._header

    def count(self: TarReader, at: int) -> bytes | None:
        nonlocal headers
        headers += 1
        return real(self, at)

    monkeypatch.setattr(TarReader, "_header", count)
    assert len(by_core(path)[0]) == 1000
    assert headers < 10
    assert os.path.getsize(path) > 1000 * 512
