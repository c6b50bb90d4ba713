"""Fields whose samples differ in length: text, bytes and lists, in files and in the index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats import Builder
from headrace.pack import PackParameters, write_pack
from headrace.tiers import Ram

COUNT = 53
ORDERS = ("exact", "batch", "epoch", "redox")
pytestmark = pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")


def said(number: int) -> str:
    """What is stored of a sample, outside the index."""
    return "" if number % 7 == 3 else f"{number} été 漢字 " * (number % 11)


def caption(number: int) -> str:
    return "" if number % 5 == 0 else f"№ {number} " * (number % 9)


def boxes(number: int) -> np.ndarray[Any, Any]:
    return np.arange(number % 6 * 4, dtype=np.float32).reshape(-1, 4) + number


def frames(number: int) -> np.ndarray[Any, Any]:
    return np.arange(number % 13, dtype=np.int16) - number


def blob(number: int) -> bytes:
    return bytes([number]) * (number % 4)


def dataset(folder: Path) -> hr.Dataset:
    """Samples of all kinds of such fields."""
    parts, offsets = [], [0]
    for number in range(COUNT):
        for part in (said(number).encode(), frames(number).tobytes()):
            parts.append(part)
            offsets.append(offsets[-1] + len(part))
    (folder / "data.bin").write_bytes(b"".join(parts))
    starts, sizes = np.array(offsets[:-1]), np.diff(offsets)
    with Builder(folder / "data.hri", root=folder) as builder:
        file = builder.add_file(folder / "data.bin")
        builder.add_field("said", "text")
        builder.add_field("caption", "text", inline=True)
        builder.add_field("boxes", "array", "float32", (None, 4), inline=True)
        builder.add_field("frames", "array", "int16", (None,))
        builder.add_field("blob", "bytes", inline=True)
        builder.add_field("label", "array", "int64", inline=True)
        builder.add_extents("said", file, starts[::2], sizes[::2])
        builder.add_extents("frames", file, starts[1::2], sizes[1::2])
        builder.add_values("caption", [caption(i) for i in range(COUNT)])
        builder.add_values("boxes", [boxes(i) for i in range(COUNT)])
        builder.add_values("blob", [blob(i) for i in range(COUNT)])
        builder.add_values("label", np.arange(COUNT))
    return hr.open(folder / "data.hri")


@pytest.fixture(params=["index", "pack"])
def samples(request: pytest.FixtureRequest, tmp_path: Path) -> hr.Dataset:
    """The samples as they are, or packed."""
    source = dataset(tmp_path)
    if request.param == "index":
        return source
    parameters = PackParameters(order="shuffled", block_bytes=600, shard_bytes=3_000)
    write_pack(source, tmp_path / "pack", parameters)
    return hr.open(tmp_path / "pack")


def flat(batches: Iterable[list[int]]) -> list[int]:
    """All samples of an epoch."""
    return sorted(number for batch in batches for number in batch)


def check(batch: Any) -> list[int]:
    """Every row is that of its sample, which its label names."""
    numbers = [int(number) for number in batch.label]
    for slot, number in enumerate(numbers):
        assert batch.said[slot] == said(number)
        assert batch.caption[slot] == caption(number)
        for found, expected in (
            (batch.boxes[slot], boxes(number)),
            (batch.frames[slot], frames(number)),
            (batch.blob[slot], np.frombuffer(blob(number), np.uint8)),
        ):
            array = np.asarray(found)
            assert array.dtype == expected.dtype
            assert array.shape == expected.shape
            assert np.array_equal(array, expected)
    return numbers


def test_a_dataset_reads_its_samples(samples: hr.Dataset) -> None:
    for sample in samples:
        number = int(sample["label"])
        assert sample["said"] == said(number)
        assert sample["caption"] == caption(number)
        assert np.array_equal(sample["boxes"], boxes(number))
        assert sample["boxes"].shape == boxes(number).shape
        assert np.array_equal(sample["frames"], frames(number))
        assert sample["blob"] == blob(number)
    assert "caption: text, boxes: float32[?, 4], frames: int16[?], blob: bytes" in repr(samples)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_every_order_delivers_each_sample_once_and_resumes(
    samples: hr.Dataset, order: str, output: Any
) -> None:
    options: dict[str, Any] = {"batch_size": 6, "order": order, "seed": 5, "output": output}
    with hr.Loader(samples, **options) as loader:
        epochs = [[check(batch) for batch in loader] for _ in range(2)]
    assert all(flat(epoch) == list(range(COUNT)) for epoch in epochs)
    for steps in (1, 4, 8, 9, 11):
        with hr.Loader(samples, **options) as loader:
            state = _state_after(loader, steps)
        with hr.Loader(samples, **options) as loader:
            loader.load_state_dict(state)
            rest = [check(batch) for batch in loader]
        both = [*epochs[0], *epochs[1]]
        assert rest == both[steps : steps + len(rest)]


def _state_after(loader: hr.Loader[Any], steps: int) -> dict[str, Any]:
    taken = 0
    while True:
        for _ in loader:
            taken += 1
            if taken == steps:
                return loader.state_dict()


def test_tiers_keep_them(samples: hr.Dataset) -> None:
    with hr.Loader(samples, batch_size=5, tiers=[Ram("1MiB")], memory="16MiB") as loader:
        for _ in range(3):
            assert flat(check(batch) for batch in loader) == list(range(COUNT))


def test_a_node_process_delivers_them(samples: hr.Dataset) -> None:
    with hr.Loader(samples.path, batch_size=4, job=hr.Job(node=hr.Node())) as loader:
        for _ in range(2):
            assert flat(check(batch) for batch in loader) == list(range(COUNT))


def _lengths(sample: hr.Sample) -> dict[str, Any]:
    assert isinstance(sample.said, str)
    assert isinstance(sample.caption, str)
    return {
        "text": sample.said + sample.caption,
        "boxes": sample.boxes,
        "frames": sample.frames.astype(np.int64).sum(),
        "label": sample.label,
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ragged", ["list", "pad"])
def test_transforms_get_str_and_arrays(samples: hr.Dataset, workers: int, ragged: Any) -> None:
    seen = []
    output = hr.Output("numpy", ragged=ragged)
    with hr.Loader(
        samples, batch_size=8, transform=_lengths, workers=workers, output=output
    ) as loader:
        for batch in loader:
            numbers = [int(number) for number in batch["label"]]
            seen += numbers
            for slot, number in enumerate(numbers):
                assert batch["text"][slot] == said(number) + caption(number)
                assert batch["frames"][slot] == frames(number).sum()
                found = batch["boxes"].data[slot] if ragged == "pad" else batch["boxes"][slot]
                assert np.array_equal(found[: len(boxes(number))], boxes(number))
    assert sorted(seen) == list(range(COUNT))


def test_lists_are_padded_on_request(samples: hr.Dataset) -> None:
    with hr.Loader(samples, batch_size=8, output=hr.Output(ragged="pad")) as loader:
        for batch in loader:
            for slot, number in enumerate(int(each) for each in batch.label):
                expected = boxes(number)
                assert batch.boxes.shape[slot].tolist() == list(expected.shape)
                data = np.asarray(batch.boxes.data[slot])
                assert np.array_equal(data[: len(expected)], expected)
                assert not data[len(expected) :].any()


def test_by_default_lists_of_the_dataset_are_lists_and_of_a_callable_an_error(
    samples: hr.Dataset,
) -> None:
    with hr.Loader(samples, batch_size=8) as loader:
        assert all(isinstance(batch.boxes, list) for batch in loader)
    with (
        hr.Loader(samples, batch_size=8, transform=_lengths, workers=0) as loader,
        pytest.raises(errors.HeadraceError, match="that of the first sample"),
    ):
        list(loader)


def test_an_error_on_request_names_the_sample_whose_shape_differs(samples: hr.Dataset) -> None:
    with (
        hr.Loader(samples, batch_size=8, shuffle=False, output=hr.Output(ragged="error")) as loader,
        pytest.raises(
            errors.InvalidArgumentError,
            match=r"field 'boxes' with Output\(ragged='error'\): sample \d has shape \(\d, 4\), "
            r"the first of its batch, sample 0, \(\d, 4\); leave ragged out",
        ),
    ):
        list(loader)
    with hr.Loader(samples, batch_size=1, output=hr.Output("numpy", ragged="error")) as loader:
        for batch in loader:
            assert np.array_equal(batch.boxes, boxes(int(batch.label[0]))[None])


def test_without_lists_ragged_needs_a_callable(samples: hr.Dataset) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="ragged='pad'\\): no field has arrays"):
        hr.Loader(samples, output=hr.Output(fields=["caption", "label"], ragged="pad"))


def test_fields_of_the_index_alone_need_no_read(samples: hr.Dataset) -> None:
    names = ["caption", "boxes", "label"]
    with hr.Loader(samples, batch_size=8, output=hr.Output(fields=names)) as loader:
        for batch in loader:
            for slot, number in enumerate(int(each) for each in batch.label):
                assert batch.caption[slot] == caption(number)
                assert np.array_equal(np.asarray(batch.boxes[slot]), boxes(number))
        assert loader.stats()["io"]["reads"] == 0


def test_stand_ins_bring_their_own_text(tmp_path: Path) -> None:
    """A sample that cannot be read: the text of the index is that of the one in its place."""
    source = dataset(tmp_path)
    with open(tmp_path / "data.bin", "r+b") as file:
        content = file.read()
        at = content.index(said(8).encode())
        file.seek(at)
        file.write(b"\xff")
    (tmp_path / "data.hri").unlink()
    index = _with_checksums(tmp_path, content)
    with hr.Loader(index, batch_size=6, on_error="substitute", seed=2) as loader:
        for batch in loader:
            check(batch)
            assert 8 not in [int(number) for number in batch.label]
    assert len(index) == len(source)


def _with_checksums(folder: Path, content: bytes) -> hr.Dataset:
    """The dataset indexed anew, with the checksums of what the file held before."""
    from headrace import _core

    contents = _core.IndexContents(COUNT, str(folder))
    status = (folder / "data.bin").stat()
    contents.add_objects(
        ["data.bin"],
        np.array([status.st_size], np.uint64),
        np.array([status.st_mtime_ns], np.int64),
    )
    sizes = [len(each) for i in range(COUNT) for each in (said(i).encode(), frames(i).tobytes())]
    starts = np.cumsum([0, *sizes[:-1]])
    for position, (name, kind) in enumerate(
        (("said", ("text", "uint8", [])), ("frames", ("list", "int16", [])))
    ):
        offsets = starts[position::2].astype(np.uint64)
        lengths = np.array(sizes[position::2], np.uint64)
        sums = _core.hash64_ranges(content, offsets, lengths)
        extents = (np.zeros(COUNT, np.uint64), offsets, lengths)
        contents.add_extent_field(name, kind, extents, sums)
    for name, kind, values in (
        ("caption", ("text", "uint8", []), [caption(i).encode() for i in range(COUNT)]),
        ("boxes", ("list", "float32", [4]), [boxes(i).tobytes() for i in range(COUNT)]),
        ("blob", ("bytes", "uint8", []), [blob(i) for i in range(COUNT)]),
    ):
        each = np.array([len(value) for value in values], np.uint64)
        contents.add_inline_field(name, kind, np.frombuffer(b"".join(values), np.uint8), each)
    contents.add_inline_field("label", ("array", "int64", []), np.arange(COUNT))
    path = folder / "checked.hri"
    _core.write_index(contents, str(path))
    return hr.open(path)


@pytest.mark.parametrize("inline", [True, False])
def test_batches_of_nothing_but_empty_values(tmp_path: Path, inline: bool) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("said", "text", inline=inline)
        if inline:
            builder.add_values("said", [""] * 10)
        else:
            builder.add_extents("said", builder.add_file(tmp_path / "a.bin"), [1] * 10, 0)
    with hr.Loader(tmp_path / "a.hri", batch_size=4) as loader:
        assert [list(batch.said) for batch in loader] == [[""] * 4, [""] * 4, [""] * 2]


def test_text_that_is_not_utf8_is_an_error_of_its_sample(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"good\xff\xfe")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("said", "text")
        file = builder.add_file(tmp_path / "a.bin")
        builder.add_extents("said", file, [0, 4], [4, 2])
    with (
        hr.Loader(tmp_path / "a.hri", batch_size=2, shuffle=False) as loader,
        pytest.raises(
            errors.DataLossError, match="step 0 sample 1 field said: its text is not UTF-8"
        ),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda b: b.add_ragged("text", b"\xff", [1]), "its text is not UTF-8"),
        (lambda b: b.add_ragged("text", "é".encode(), [1, 1]), "begins inside a character"),
        (lambda b: b.add_values("text", [b"bytes"]), "field 'text' of text: got b'bytes'"),
        (lambda b: b.add_values("blob", ["str"]), "field 'blob' of bytes: got 'str'"),
        (lambda b: b.add_ragged("text", b"ab", [1]), "their sum is 1, but there are 2 bytes"),
        (lambda b: b.add_ragged("text", b"ab", [3]), "their sum is 3, but there are 2 bytes"),
        (lambda b: b.add_ragged("text", b"ab", [-1, 3]), "lengths: got -1, must be 0 or more"),
        (lambda b: b.add_ragged("text", b"ab", 2), "lengths: got 2, must be one number a sample"),
        (lambda b: b.add_ragged("text", "ab", [2]), "got values of <U2, must be bytes"),
        (lambda b: b.add_ragged("blob", [300, 1], [2]), "got values of int64, must be bytes"),
        (lambda b: b.add_ragged("list", np.zeros((0, 4)), [2**61]), "there are 0 entries"),
        (lambda b: b.add_values("text", "hello"), "must be a sequence of values, one a sample"),
        (lambda b: b.add_values("text", ["\ud800"]), "which is not UTF-8: surrogates"),
        (lambda b: b.add_values("list", [1, 2]), "must be .'entries', 4."),
        (lambda b: b.add_field("x", "text", shape=(2,)), "only an array has one"),
        (lambda b: b.add_ragged("list", np.zeros((3, 2)), [3]), "must be .'entries', 4."),
        (lambda b: b.add_ragged("list", np.zeros((3, 4), "O"), [3]), "got values of object"),
        (lambda b: b.add_ragged("label", np.zeros(3), [3]), "its samples have one shape"),
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, add: Any, message: str) -> None:
    builder = Builder(tmp_path / "a.hri", root=tmp_path)
    builder.add_field("text", "text", inline=True)
    builder.add_field("blob", "bytes", inline=True)
    builder.add_field("list", "array", "float64", (None, 4), inline=True)
    builder.add_field("label", "array", "int64", inline=True)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        add(builder)
    builder.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_image_cannot_be_inline(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "a.hri", root=tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="is an image and inline"):
        builder.add_field("image", "image", inline=True)
    builder.discard()


def test_lists_of_several_types_become_that_of_the_field(tmp_path: Path) -> None:
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("n", "array", "int64", (None,), inline=True)
        builder.add_values("n", [np.array([1], np.int64), np.array([2, 3], np.uint8), []])
    assert [each["n"].tolist() for each in hr.open(tmp_path / "a.hri")] == [[1], [2, 3], []]


def test_lists_of_a_file_are_aligned_as_their_type_wants(tmp_path: Path) -> None:
    """Also those that are large enough to be read in place, and begin at an odd byte."""
    values = [np.arange(30_000 + i, dtype=np.float32) for i in range(6)]
    sizes = [each.nbytes for each in values]
    (tmp_path / "a.bin").write_bytes(b"x" + b"".join(each.tobytes() for each in values))
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("n", "array", "float32", (None,))
        file = builder.add_file(tmp_path / "a.bin")
        builder.add_extents("n", file, np.cumsum([1, *sizes[:-1]]), sizes)
    for io in ("io_uring", "threads"):
        engine = hr.EngineOptions(io=io)
        with hr.Loader(
            tmp_path / "a.hri", 2, shuffle=False, output=hr.Output("numpy", ids=True), engine=engine
        ) as loader:
            for batch in loader:
                for number, row in zip(batch.sample_id.tolist(), batch.n, strict=True):
                    assert row.flags.aligned
                    assert np.array_equal(row, values[number])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_worker_names_the_sample_whose_text_is_not_utf8(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.bin").write_bytes(b"good\xff\xfeok")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("said", "text")
        builder.add_extents("said", builder.add_file(tmp_path / "a.bin"), [0, 6, 4], [4, 2, 2])
    loader = hr.Loader(
        tmp_path / "a.hri", 3, shuffle=False, transform=_said, workers=workers, output="numpy"
    )
    with loader, pytest.raises(errors.HeadraceError, match=r"sample 2.* its text is not UTF-8"):
        next(iter(loader))


def _said(sample: hr.Sample) -> int:
    return len(sample.said)


@pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")
@pytest.mark.parametrize("present", [(), (1,), (0, 9, 20)])
def test_packs_of_blocks_without_a_byte_of_a_field(
    tmp_path: Path, present: tuple[int, ...]
) -> None:
    texts = ["word" if i in present else "" for i in range(24)]
    lists = [
        np.arange(i % 3, dtype=np.int16) if i > 7 else np.zeros(0, np.int16) for i in range(24)
    ]
    parts = [p for t, n in zip(texts, lists, strict=True) for p in (t.encode(), n.tobytes())]
    sizes = [len(each) for each in parts]
    begins = np.cumsum([0, *sizes[:-1]])
    (tmp_path / "a.bin").write_bytes(b"".join(parts))
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        file = builder.add_file(tmp_path / "a.bin")
        builder.add_field("text", "text")
        builder.add_field("list", "array", "int16", (None,))
        builder.add_extents("text", file, begins[::2], sizes[::2])
        builder.add_extents("list", file, begins[1::2], sizes[1::2])
    write_pack(
        hr.open(tmp_path / "a.hri"),
        tmp_path / "pack",
        PackParameters(order="source", block_bytes=4096, block_samples=8, shard_bytes=30_000),
    )
    pack = hr.open(tmp_path / "pack")
    assert [each["text"] for each in pack] == texts
    for order in ORDERS:
        with hr.Loader(pack, 5, order=order, output=hr.Output("numpy", ids=True)) as loader:
            for _ in range(2):
                seen = []
                for batch in loader:
                    for slot, number in enumerate(batch.sample_id.tolist()):
                        seen.append(number)
                        assert batch.text[slot] == texts[number]
                        assert np.array_equal(batch.list[slot], lists[number])
                assert sorted(seen) == list(range(24))


def test_inspect_shows_text_and_classes_as_they_are(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        builder.add_field("image", "image")
        builder.add_field("said", "text", inline=True)
        builder.add_field("label", "array", "int64", inline=True)
        builder.set_classes(["[/b]", "\x1b[31m", "a$\\frac$", "\udcff"])
        file = builder.add_file(tmp_path / "a.png")
        size = (tmp_path / "a.png").stat().st_size
        builder.add_extents("image", file, [0] * 4, size)
        builder.add_values("said", ["see [/red] this", "[red]x[/red]", "$x$", ""])
        builder.add_values("label", [0, 1, 2, 3])
    shown = run("inspect", tmp_path / "a.hri", "--samples", 4, "--show", tmp_path / "s.png").stdout
    assert "see [/red] this" in shown
    assert "[red]x[/red]" in shown
    assert "[/b]" in shown
    assert "\x1b" not in shown
    assert (tmp_path / "s.png").stat().st_size > 1000


def checked(sample: hr.Sample) -> int:
    number = int(sample.label)
    assert sample.said == said(number)
    assert sample.caption == caption(number)
    assert np.array_equal(sample.boxes, boxes(number))
    return number


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_have_str_and_arrays(samples: hr.Dataset, workers: int) -> None:
    options: dict[str, Any] = {"workers": workers, "output": "numpy"}
    with hr.Loader(samples, batch_size=8, transform=checked, **options) as loader:
        assert sorted(number for batch in loader for number in batch) == list(range(COUNT))


def length(sample: hr.Sample) -> int:
    assert sample.frames.dtype == np.int16
    return len(sample.said) + 10 * len(sample.frames)


@pytest.mark.parametrize("process", [None, hr.Node()])
def test_a_batch_whose_samples_have_no_bytes_reaches_workers(
    tmp_path: Path, process: hr.Node | None
) -> None:
    (tmp_path / "said.bin").write_bytes(b"abc")
    with Builder(tmp_path / "said.hri", tmp_path) as builder:
        builder.add_field("said", "text")
        builder.add_field("frames", "array", "int16", (None,))
        file = builder.add_file(tmp_path / "said.bin")
        builder.add_extents("said", file, [0] * 4, [0, 0, 0, 3])
        builder.add_extents("frames", file, [0] * 4, [0, 0, 2, 0])
    with hr.Loader(
        tmp_path / "said.hri", 2, transform=length, workers=hr.Workers(1, start="fork"),
        shuffle=False, job=hr.Job(node=process),
    ) as loader:  # fmt: skip
        assert [batch.tolist() for batch in loader] == [[0, 0], [10, 3]]
