"""Fields whose samples are compressed each by itself: `Builder.add_field(coding=)`."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from commands import run, run_json
from format_checks import BATCH, check_orders, check_rows, check_workers, loader_of, plain
from PIL import Image

import headrace as hr
from headrace import _core, errors
from headrace._measure.machine import _decode_name
from headrace.formats import Builder, Format, Sample, register, table
from headrace.pack import PackParameters, write_pack

ROWS = 40


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def by_arrow(name: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.Codec(name).compress(data))


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": by_arrow("zstd"),
    "zlib": zlib.compress,
    "deflate": deflated,
    "snappy": by_arrow("snappy"),
    "gzip": lambda data: gzip.compress(data, mtime=0),
}


def jpeg(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20 + number, 16), (number, 50, 200)).save(file, "JPEG")
    return file.getvalue()


def shuffled(data: bytes, width: int) -> bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, width).T.tobytes()


def sample(number: int) -> Sample:
    return {
        "text": f"Zeile {number}, ü" * (number % 9),
        "blob": random.Random(number).randbytes(number % 50) + bytes(300 * (number % 7)),
        "box": np.full((3, 2), number, np.float32),
        "tokens": np.arange(number, number + 100, dtype=np.uint16).astype(np.int64),
        "points": np.arange(2 * (number % 5), dtype=np.int32).reshape(-1, 2),
        "image": jpeg(number),
        "number": np.int64(number),
    }


def stored(number: int) -> dict[str, bytes]:
    """The bytes of each field before they are compressed."""
    values = sample(number)
    return {
        "text": values["text"].encode(),
        "blob": b"HEAD" + values["blob"],
        "box": shuffled(values["box"].tobytes(), 4),
        "tokens": shuffled(values["tokens"].astype(np.uint16).tobytes(), 2),
        "points": values["points"].tobytes(),
        "image": values["image"],
    }


@dataclass(frozen=True, kw_only=True)
class Packed(Format):
    """A .packed file of samples whose fields are compressed one by one."""

    name: ClassVar[str] = "packed"
    opens: ClassVar[str] = "a .packed file"

    coding: str = "zstd"
    images: bool = True

    def recognises(self, path: str) -> bool:
        return path.endswith(".packed") and Path(path).is_file()

    def fill(self, path: str, builder: Builder) -> None:
        how: Any = {"coding": self.coding}
        builder.add_field("text", "text", **how)
        builder.add_field("blob", "bytes", header_bytes=4, **how)
        builder.add_field("box", "array", "float32", (3, 2), shuffled=True, **how)
        builder.add_field(
            "tokens", "array", "uint16", (100,), batch_dtype="int64", shuffled=True, **how
        )
        builder.add_field("points", "array", "int32", (None, 2), **how)
        if self.images:
            builder.add_field("image", "image", **how)
        builder.add_field("number", "array", "int64", inline=True)
        file = builder.add_file(path)
        for number, entries in enumerate(json.loads(Path(path + ".json").read_text())):
            for name, (offset, size, decoded) in entries.items():
                if name == "image" and not self.images:
                    continue
                more = {} if name in ("box", "tokens") else {"decoded": [decoded]}
                builder.add_extents(name, file, offset, size, **more)
            builder.add_values("number", [number])

    def own_samples(self, path: str) -> list[Sample]:
        own = [sample(i) for i in range(ROWS)]
        return own if self.images else [_without(each, "image") for each in own]


def _without(row: Sample, name: str) -> Sample:
    return {key: value for key, value in row.items() if key != name}


def write(path: Path, coding: str) -> Path:
    """The samples end to end, and beside it [offset, size, decoded size] of each value."""
    data, places = bytearray(), []
    for number in range(ROWS):
        entries = {}
        for name, value in stored(number).items():
            packed = CODINGS[coding](value)
            header = 4 if name == "blob" else 0
            entries[name] = (len(data), len(packed), len(value) - header)
            data += packed
        places.append(entries)
    path.write_bytes(data)
    Path(f"{path}.json").write_text(json.dumps(places))
    return path


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FORMATS", table.FORMATS)
    register(Packed())


@pytest.mark.parametrize("coding", CODINGS)
def test_samples_and_batches_are_those_that_were_compressed(tmp_path: Path, coding: str) -> None:
    path = write(tmp_path / "a.packed", coding)
    dataset, own = check_rows(path, Packed(coding=coding))
    assert [each.coding for each in dataset.index.fields] == [coding] * 6 + ["stored"]
    with loader_of(dataset, "exact") as loader:
        seen = [int(number) for batch in loader for number in _checked(batch, own, dataset)]
    assert sorted(seen) == list(range(ROWS))


def _checked(batch: Any, own: list[Sample], dataset: hr.Dataset) -> list[int]:
    numbers = [int(number) for number in batch.sample_id]
    for name in dataset.fields:
        for number, value in zip(numbers, getattr(batch, name), strict=True):
            wanted = own[number][name]
            if isinstance(wanted, bytes):
                assert bytes(value) == wanted, (number, name)
            elif isinstance(wanted, str):
                assert value == wanted, (number, name)
            else:
                assert plain(value) == plain(wanted), (number, name)
    return numbers


@pytest.mark.parametrize("coding", ["zstd", "gzip"])
def test_every_order_with_tiers_and_resumes_and_workers(tmp_path: Path, coding: str) -> None:
    path = write(tmp_path / "a.packed", coding)
    check_orders(*check_rows(path, Packed(coding=coding)), tmp_path)
    # Workers get images as pixels.
    check_workers(*check_rows(path, Packed(coding=coding, images=False)))


def test_a_node_process_decompresses_for_its_ranks(tmp_path: Path) -> None:
    dataset, own = check_rows(write(tmp_path / "a.packed", "snappy"), Packed(coding="snappy"))
    with loader_of(dataset, "exact", job=hr.Job(node=hr.Node())) as loader:
        seen = [number for batch in loader for number in _checked(batch, own, dataset)]
    assert sorted(seen) == list(range(ROWS))


def test_images_are_decoded_once_they_are_decompressed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.packed", "zstd")
    dataset = hr.open(path)
    (tmp_path / "plain").mkdir()
    for number in range(ROWS):
        (tmp_path / f"plain/{number:03}.jpg").write_bytes(jpeg(number))
    with Builder(tmp_path / "plain.hri", root=tmp_path) as builder:
        builder.add_field("image", "image")
        for each in sorted((tmp_path / "plain").glob("*")):
            builder.add_extents("image", builder.add_file(each), 0, each.stat().st_size)
    options: Any = {
        "output": hr.Output("numpy", fields=["image"], ids=True),
        "transform": hr.image.train(8),
        "seed": 3,
    }
    with (
        hr.Loader(dataset, BATCH, **options) as one,
        hr.Loader(tmp_path / "plain.hri", BATCH, **options) as other,
    ):
        for mine, theirs in zip(one, other, strict=True):
            assert mine.sample_id.tolist() == theirs.sample_id.tolist()
            assert np.array_equal(mine.image, theirs.image)


def test_memory_bounds_what_is_decompressed_for_a_codec(tmp_path: Path) -> None:
    """A compressed image that the index says is huge needs as much scratch memory."""
    data = gzip.compress(bytes(64 * 2**20), mtime=0)
    (tmp_path / "a.bin").write_bytes(data)
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("image", "image", coding="gzip")
        file = builder.add_file(tmp_path / "a.bin")
        builder.add_extents("image", [file] * 4, 0, len(data), decoded=64 * 2**20)
    options: Any = {"transform": hr.image.train(8), "memory": "32MiB"}
    with (
        hr.Loader(tmp_path / "a.hri", 2, **options) as loader,
        pytest.raises(
            errors.InvalidArgumentError, match=r"decompressing 6.* KiB to 64\.0 MiB take"
        ),
    ):
        list(loader)


def test_packs_keep_the_stored_bytes_and_their_codec(tmp_path: Path) -> None:
    path = write(tmp_path / "a.packed", "zlib")
    source = hr.open(path, format=Packed(coding="zlib"))
    write_pack(source, tmp_path / "a.pack", PackParameters(seed=2, block_samples=7))
    packed = hr.open(tmp_path / "a.pack")
    for each in packed:
        assert each.keys() == sample(0).keys()
        for name, wanted in sample(int(each["number"])).items():
            assert plain(each[name]) == plain(wanted), name
    assert [each.coding for each in packed.index.fields] == ["zlib"] * 6 + ["stored"]
    assert all(each.has_checksums for each in packed.index.fields[:6])
    (shard,) = (tmp_path / "a.pack").glob("*.arrow")
    rows = pa.ipc.open_file(pa.memory_map(str(shard))).read_all()
    assert rows.schema.field("text").metadata[b"headrace.coding"] == b"zlib"
    wanted = {zlib.compress(stored(i)["text"]) for i in range(ROWS)}
    assert set(rows["text"].to_pylist()) == wanted
    own = [sample(int(each["number"])) for each in packed]
    check_orders(packed, own, tmp_path)
    run("verify", tmp_path / "a.pack")


def test_commands_show_the_codec(tmp_path: Path) -> None:
    path = write(tmp_path / "a.packed", "zstd")
    hri = tmp_path / "a.hri"
    hr.open(path, index=hri)
    shown = run("inspect", hri).stdout
    assert "text, zstd" in shown
    assert "uint16[100] as int64, zstd" in shown
    (text,) = (x for x in run_json("inspect", hri)["fields"] if x["name"] == "text")
    assert text["decoded_bytes"]["max"] == max(len(stored(i)["text"]) for i in range(ROWS))
    run("verify", hri)
    assert "text: text, zstd" in repr(hr.open(hri))


def test_a_profile_measures_decompression(tmp_path: Path) -> None:
    data = zlib.compress(bytes(1000))
    (tmp_path / "a.bin").write_bytes(data * 30)
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("data", "bytes", coding="zlib")
        file = builder.add_file(tmp_path / "a.bin")
        offsets = np.arange(30) * len(data)
        builder.add_extents("data", file, offsets, len(data), decoded=1000)
    storage = _core.StorageProbe(_core.Index.open(str(tmp_path / "a.hri")))
    probe = _core.DecodeProbe(storage, None)
    assert not probe.is_copy
    assert probe.mean_bytes == len(data)
    found = probe.run(1, 0.001, 0.1)
    assert found.bytes == found.operations * len(data)
    assert _decode_name(probe.is_copy, False) == "decompress"


# Damage.


def test_damage_is_an_error_that_names_sample_field_file_and_sizes(tmp_path: Path) -> None:
    for coding in CODINGS:
        path = write(tmp_path / f"{coding}.packed", coding)
        row = Packed(coding=coding)
        dataset = hr.open(path, format=row)
        good, draw, failures = path.read_bytes(), random.Random(3), 0
        places = json.loads(Path(f"{path}.json").read_text())
        for _ in range(300):
            number = draw.randrange(ROWS)
            name = draw.choice(["text", "blob", "box", "tokens", "points"])
            offset, size, _ = places[number][name]
            data = bytearray(good)
            data[draw.randrange(offset, offset + size)] ^= 1 << draw.randrange(8)
            # In place: size and time stay those of the index.
            stat = path.stat()
            path.write_bytes(data)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            try:
                found = dataset.read(number)
            except errors.DataLossError as error:
                failures += 1
                message = str(error)
                if "its text is not UTF-8" in message:
                    assert f"{path}: sample {number} field {name}" in message
                    continue
                assert f"reading sample {number} ({name}) from {path} bytes [{offset}, " in message
            else:
                assert found.keys() == sample(number).keys()
        assert failures > 30, coding


def test_a_loader_names_the_damage_and_substitutes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.packed", "gzip")
    places = json.loads(Path(f"{path}.json").read_text())
    offset, size, _ = places[17]["blob"]
    data = bytearray(path.read_bytes())
    data[offset + size - 4] ^= 1  # the size at the end
    path.write_bytes(data)
    dataset = hr.open(path, format=Packed(coding="gzip"))
    message = (
        rf"sample 17 \(a\.packed\): field blob: gzip bytes \[{offset}, {offset + size}\) of "
        r"a\.packed: damaged at byte .*incorrect length check; copy or write the file again"
    )
    with loader_of(dataset, "exact") as loader, pytest.raises(errors.DataLossError, match=message):
        list(loader)
    with loader_of(dataset, "exact", on_error="substitute") as loader:
        numbers = [int(number) for batch in loader for number in batch.sample_id]
        assert loader.stats()["substitutions"]
    assert 17 not in numbers
    assert len(numbers) == ROWS


def test_a_size_that_differs_from_the_index_is_data_loss(tmp_path: Path) -> None:
    packed = gzip.compress(b"some text", mtime=0)
    (tmp_path / "a.bin").write_bytes(packed)
    for said in (0, 8, 10, 5000):
        hri = tmp_path / f"{said}.hri"
        with Builder(hri, root=tmp_path) as builder:
            builder.add_field("text", "text", coding="gzip")
            file = builder.add_file(tmp_path / "a.bin")
            builder.add_extents("text", file, [0], [len(packed)], decoded=[said])
        with pytest.raises(
            errors.DataLossError, match=rf"a\.bin bytes \[0, {len(packed)}\): gzip: it"
        ):
            hr.open(hri)[0]
        with hr.Loader(hri, 1) as loader, pytest.raises(errors.DataLossError, match=f"{said}"):
            list(loader)


# The builder.


def test_what_the_builder_refuses(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(100))

    def build(kind: Any, decoded: Any, options: Any) -> None:
        with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
            builder.add_field("x", kind, "uint16" if kind == "array" else None, **options)
            file = builder.add_file(tmp_path / "a.bin")
            builder.add_extents("x", file, [0, 10], [10, 90], decoded=decoded)

    def refused(message: str, kind: str = "bytes", decoded: Any = None, **options: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            build(kind, decoded, options)
        assert not (tmp_path / "a.hri").exists()

    refused("must be one of", coding="lz4")
    refused("decoded= is needed: the bytes that each", coding="zstd")
    refused("decoded= was given, but its samples are not comp", decoded=[1, 2])
    refused("or arrays of one shape", kind="array", coding="zlib", decoded=[2, 2])
    refused("is shuffled but no array", coding="zlib", shuffled=True, decoded=[2, 2])
    refused("is shuffled or has a header but is not compressed", header_bytes=3)
    refused("is inline and compressed", coding="zlib", inline=True, decoded=[2, 2])
    refused("header_bytes", coding="zlib", header_bytes=-1, decoded=[2, 2])
    refused("2 bytes decoded, .* a multiple of 4", kind="array", shape=(None, 2), coding="gzip",
            decoded=[2, 2])  # fmt: skip
    refused(r"sample 0: 10 bytes stored decode to 10321: gzip gives 10320 at most", coding="gzip",
            decoded=[10_321, 1])  # fmt: skip
    refused("2\\^40 or more", coding="zstd", decoded=[1, 2**40])
    refused("differ in number", coding="zstd", decoded=[1, 2, 3])


def test_decoded_sizes_alone_are_for_decoders_and_change_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abcdefghij")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("x", "bytes", decoded_sizes=True)
        file = builder.add_file(tmp_path / "a.bin")
        builder.add_extents("x", file, [0, 4], [4, 6], decoded=[4_000, 2**39])
    dataset = hr.open(tmp_path / "a.hri")
    assert dataset.index.decoded_sizes(0).tolist() == [4_000, 2**39]
    assert [each["x"] for each in dataset] == [b"abcd", b"efghij"]
    with hr.Loader(dataset, 2, order="exact", seed=1, output="numpy") as loader:
        assert sorted(bytes(row) for batch in loader for row in batch.x) == [b"abcd", b"efghij"]


def test_what_needs_no_codec_has_the_former_version(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(100))
    for coding, version in (("stored", 1), ("zstd", 3)):
        with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
            builder.add_field("x", "array", "uint8", (100,), coding=coding)  # type: ignore[arg-type]
            builder.add_extents("x", builder.add_file(tmp_path / "a.bin"), [0], [100])
        assert int.from_bytes((tmp_path / "a.hri").read_bytes()[8:12], "little") == version


def test_bytes_are_decoded_for_formats() -> None:
    data = np.arange(500, dtype=np.uint16).tobytes()
    for coding, encode in CODINGS.items():
        assert _core.decode_bytes(coding, encode(data), len(data)).tobytes() == data
        packed = encode(shuffled(data, 2))
        assert _core.decode_bytes(coding, packed, len(data), 2).tobytes() == data
    with pytest.raises(errors.InvalidArgumentError, match="an element has 1 byte at least"):
        _core.decode_bytes("stored", data, len(data), 0)
