"""Data before labels, where nobody chose the order of fields; and one order everywhere."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import tarfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import headrace as hr
from headrace import formats
from headrace.formats._fields.order import FieldType, Role, data_first, roles
from headrace.pack import PackParameters, write_pack

COUNT = 24
NAMES = (
    "image",
    "label",
    "cls",
    "txt",
    "wav",
    "seg_png",
    "x",
    "image/class/text",
    "json",
    "txt_gz",
)
TYPES = st.builds(
    FieldType,
    st.sampled_from(NAMES) | st.text(max_size=8),
    st.sampled_from(("image", "bytes", "text", "array", "list", "nested")),
    st.booleans(),
)
SAMPLES = st.lists(TYPES, max_size=6, unique_by=lambda each: each.name)


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 9, 3), number * 9, np.uint8)).save(file, "PNG")
    return file.getvalue()


def label(number: int) -> int:
    return number % 5


def write_tar(path: Path, rows: Iterable[Mapping[str, bytes]]) -> Path:
    """As webdataset's TarWriter does: the members of a sample are sorted."""
    with tarfile.open(path, "w") as tar:
        for number, row in enumerate(rows):
            for kind, data in sorted(row.items()):
                member = tarfile.TarInfo(f"{number:04}.{kind}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    rows = ({"png": picture(i), "cls": b"%d" % label(i)} for i in range(COUNT))
    return write_tar(tmp_path / "a.tar", rows)


def numbers(images: Any) -> list[int]:
    return [int(each) // 9 for each in np.asarray(images).reshape(len(images), -1)[:, 0]]


def check(images: Any, labels: Any) -> list[int]:
    seen = numbers(images)
    assert [int(each) for each in labels] == [label(i) for i in seen]
    return seen


PIXELS = hr.image.resize((8, 9), dtype="uint8", layout="NHWC")


# The pure function.


@given(SAMPLES)
def test_all_fields_stay_and_no_label_comes_before_all_data(fields: list[FieldType]) -> None:
    ordered = data_first(fields)
    assert sorted(ordered) == sorted(each.name for each in fields)
    if any(role is not Role.LABEL for role in roles(fields)):
        by_name = dict(zip((each.name for each in fields), roles(fields), strict=True))
        assert by_name[ordered[0]] is not Role.LABEL


@given(SAMPLES)
def test_what_begins_with_data_stays_as_it_is(fields: list[FieldType]) -> None:
    if fields and roles(fields)[0] is not Role.LABEL:
        assert data_first(fields) == [each.name for each in fields]
    again = [next(each for each in fields if each.name == name) for name in data_first(fields)]
    assert data_first(again) == data_first(fields)


@given(SAMPLES)
def test_of_fields_that_begin_with_a_label_roles_are_sorted_and_else_stay(
    fields: list[FieldType],
) -> None:
    if not fields or roles(fields)[0] is not Role.LABEL:
        return
    found = roles(fields)
    by_name = {each.name: (found[at], at) for at, each in enumerate(fields)}
    places = [by_name[name] for name in data_first(fields)]
    assert places == sorted(places)


IMAGE, SOUND, CLS = (
    FieldType("image", "image"), FieldType("wav", "bytes"), FieldType("label", "array", True)
)  # fmt: skip
TXT, JSON, ARRAY = (
    FieldType("txt", "bytes"), FieldType("json", "bytes"), FieldType("x", "array")
)  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        ([CLS, IMAGE], "image label"),
        ([JSON, IMAGE], "image json"),
        ([CLS, ARRAY], "x label"),
        ([CLS, TXT], "txt label"),
        ([JSON, TXT], "txt json"),
        ([TXT, SOUND], "wav txt"),
        ([TXT, IMAGE], "image txt"),
        ([FieldType("caption", "text"), FieldType("jpeg", "image")], "jpeg caption"),
        ([FieldType("caption_gz", "bytes"), IMAGE], "image caption_gz"),
        ([CLS, IMAGE, JSON, TXT], "image label json txt"),
        ([CLS, ARRAY, IMAGE], "image x label"),
        ([FieldType("mask_png", "image"), FieldType("png", "image")], "png mask_png"),
        ([FieldType("seg1_png", "image"), FieldType("png", "image")], "png seg1_png"),
        ([FieldType("labels", "array"), FieldType("pixels", "array")], "pixels labels"),
        ([FieldType("classLabel", "bytes"), FieldType("x", "list")], "x classLabel"),
        ([FieldType("image/class/text", "bytes"), FieldType("image/encoded", "image")],
         "image/encoded image/class/text"),
        ([FieldType("attention_mask", "list"), FieldType("input_ids", "list")],
         "input_ids attention_mask"),
        # Data are first, so all stay.
        ([IMAGE, CLS, TXT, ARRAY], "image label txt x"),
        ([ARRAY, IMAGE], "x image"),
        ([FieldType("flac", "bytes"), IMAGE], "flac image"),
        # No data.
        ([CLS, FieldType("weight", "array", True)], "label weight"),
        ([CLS], "label"),
        ([FieldType("masked", "array"), CLS], "masked label"),
    ],
)  # fmt: skip
def test_the_order_of(fields: list[FieldType], order: str) -> None:
    assert data_first(fields) == order.split()


# One order everywhere.


def test_a_loop_over_images_and_labels_gets_them(tar: Path) -> None:
    dataset = hr.open(tar)
    assert [each.name for each in dataset.index.fields] == ["label", "image"]
    assert dataset.fields == ("image", "label")
    for sample in (dataset[3], dataset.read(3), dataset.decoded(3), list(dataset)[3]):
        assert list(sample) == ["image", "label"]
        assert sample["label"] == 3
    assert "image: image, label: int64" in repr(dataset)
    seen = []
    with hr.Loader(dataset, 5, transform=PIXELS, output=hr.Output(ids=True)) as loader:
        for images, labels, ids in loader:
            assert check(images, labels) == ids.tolist()
            seen += ids.tolist()
        batch = next(iter(loader))
        assert batch._fields == ("image", "label", "sample_id")
        check(batch["image"], batch.label)
    assert sorted(seen) == list(range(COUNT))


def taken(sample: hr.Sample) -> dict[str, Any]:
    image, number = sample
    assert tuple(sample.keys()) == ("image", "label")
    return {"pixels": image, "number": number}


def collated(samples: list[hr.Sample]) -> tuple[Any, Any]:
    images, labels = zip(*samples, strict=True)
    return np.stack(images), np.array(labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_collate_fn_get_the_same_order(tar: Path, workers: int) -> None:
    with hr.Loader(tar, 5, transform=(PIXELS, taken), workers=workers) as loader:
        assert sum(len(check(batch["pixels"], batch["number"])) for batch in loader) == COUNT
    own = hr.Workers(workers, collate_fn=collated)
    with hr.Loader(tar, 5, transform=PIXELS, workers=own) as loader:
        assert sum(len(check(*batch)) for batch in loader) == COUNT


def test_torch_gets_the_same_order(tar: Path) -> None:
    torch = pytest.importorskip("torch")
    import headrace.torch as ht
    from headrace.papers.redox import RedoxFetcher

    with hr.Loader(tar, 5, transform=PIXELS, output="numpy") as loader:
        samples = RedoxFetcher(loader)
        batches = torch.utils.data.DataLoader(samples, batch_sampler=samples.sampler)
        assert sum(len(check(images, labels)) for images, labels in batches) == COUNT
    dataset = hr.open(tar)
    plain = ht.DataLoader(
        dataset, batch_size=5, collate_fn=lambda rows: [[*x.values()] for x in rows]
    )
    (first, *_) = plain
    assert [row[1] for row in first] == [label(i) for i in range(5)]
    assert first[2][0] == picture(2)


def test_states_and_other_processes_have_the_same_order(tar: Path, tmp_path: Path) -> None:
    dataset = hr.open(tar)
    with hr.Loader(dataset, 5, transform=PIXELS, output=hr.Output(ids=True)) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [each.sample_id.tolist() for each in batches]
    # What states say of the dataset is as before: the order of the index.
    assert state["dataset"] == f"{COUNT} samples of label, image"
    again = pickle.loads(pickle.dumps(dataset))
    with hr.Loader(again, 5, transform=PIXELS, output=hr.Output(ids=True)) as loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert [check(images, labels) for images, labels, _ in loader] == rest
    with hr.Loader(tar, 5, transform=PIXELS, job=hr.Job(node=hr.Node())) as loader:
        assert sum(len(check(images, labels)) for images, labels in loader) == COUNT


def test_the_command_shows_the_same_order(tar: Path) -> None:
    command = [sys.executable, "-m", "headrace", "inspect", str(tar), "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert [each["name"] for each in told["fields"]] == ["image", "label"]


def test_fields_and_a_named_index_and_a_pack_keep_it(tar: Path, tmp_path: Path) -> None:
    with hr.Loader(tar, 5, output=hr.Output(fields=("label", "image")), transform=PIXELS) as loader:
        assert sum(len(check(images, labels)) for labels, images in loader) == COUNT
    source = hr.open(tar, index=tmp_path / "own.hri")
    assert hr.open(tmp_path / "own.hri").fields == ("image", "label")
    write_pack(source, tmp_path / "pack", PackParameters(block_bytes=500))
    pack = hr.open(tmp_path / "pack")
    assert [each.name for each in pack.index.fields] == ["label", "image"]
    assert pack.fields == ("image", "label")
    with hr.Loader(pack, 5, transform=PIXELS) as loader:
        assert sum(len(check(images, labels)) for images, labels in loader) == COUNT
    write_pack(pack, tmp_path / "again", PackParameters(block_bytes=500))
    assert hr.open(tmp_path / "again").fields == ("image", "label")


def test_a_pack_of_fields_in_their_order_says_nothing_of_it(tmp_path: Path) -> None:
    rows = ({"jpg": picture(i), "txt": b"x"} for i in range(COUNT))
    source = hr.open(write_tar(tmp_path / "a.tar", rows))
    write_pack(source, tmp_path / "pack", PackParameters(block_bytes=500))
    assert "fields" not in hr.open(tmp_path / "pack").index.attributes


def test_a_damaged_order_of_a_pack_is_an_error(tar: Path) -> None:
    row, index = formats.table.named("pack"), hr.open(tar).index

    class Damaged:
        root, attributes = index.root, {"fields": '["image"]'}

    with pytest.raises(hr.errors.DataLossError, match="its list of fields is damaged; copy or cre"):
        row.field_order(Damaged(), [IMAGE, CLS])  # type: ignore[arg-type]


# Formats.


def test_arrays_of_a_npz_are_taken_by_name(tmp_path: Path) -> None:
    images, labels = np.arange(COUNT * 6).reshape(COUNT, 2, 3), np.arange(COUNT)
    np.savez(tmp_path / "named.npz", labels=labels, images=images)
    np.savez(tmp_path / "placed.npz", labels, images)
    assert hr.open(tmp_path / "named.npz").fields == ("images", "labels")
    with pytest.warns(RuntimeWarning, match="has 'arr_0' first, then 'arr_1'"):
        loader = hr.Loader(tmp_path / "placed.npz", 5)
    with loader:
        assert loader.stats is not None
    assert hr.open(tmp_path / "placed.npz").fields == ("arr_0", "arr_1")
    records = np.zeros(COUNT, [("label", "i4"), ("image", "u1", (2, 3))])
    np.save(tmp_path / "records.npy", records)
    assert hr.open(tmp_path / "records.npy").fields == ("label", "image")


@pytest.mark.parametrize("columns", [("labels", "images"), None])
def test_a_schema_keeps_its_order_and_the_loader_says_so(
    tmp_path: Path, columns: tuple[str, ...] | None
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"labels": list(map(label, range(COUNT))), "images": list(map(picture, range(COUNT)))}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    dataset = hr.open(tmp_path / "a.parquet", format=formats.Parquet(columns=columns))
    assert dataset.fields == ("labels", "images")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with hr.Loader(dataset, 5, transform=PIXELS) as loader:
            assert sum(len(check(images, labels)) for labels, images in loader) == COUNT
            assert sum(len(check(images, labels)) for labels, images in loader) == COUNT
        before = len(told)
        for fields in (("images", "labels"), ("labels", "images"), ("images",)):
            with hr.Loader(dataset, 5, transform=PIXELS, output=hr.Output(fields=fields)):
                pass
    assert len(told) == before == (columns is None)
    for each in told:
        assert "output=hr.Output(fields=('images', 'labels')); to keep this" in str(each.message)
        assert each.filename == __file__


def test_a_format_of_ones_own_keeps_its_order(tmp_path: Path) -> None:
    class Own(formats.Format):
        name, opens = "own-order", "a file"

        def recognises(self, path: str) -> bool:
            return False

        def fill(self, path: str, builder: formats.Builder) -> None:
            builder.add_field("label", "array", "int64", inline=True)
            builder.add_field("image", "image")
            builder.add_values("label", [1])
            builder.add_extents("image", builder.add_file(path), 0, 3)

    (tmp_path / "a").write_bytes(b"abc")
    dataset = hr.open(tmp_path / "a", format=Own())
    assert dataset.fields == ("label", "image")
    with hr.Loader(dataset):
        pass  # Without a warning: tests turn them into errors.
