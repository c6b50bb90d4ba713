"""Batches copied to a device ahead of the loop: the same values, in their place, nothing early."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import FLAT, as_bytes, epoch_ids, flat, payload_ids, sample_file

import headrace as hr
from headrace import errors

torch = pytest.importorskip("torch")

from headrace.torch import DeviceBatches, Normalize  # noqa: E402
from headrace.torch._devices import batches as device_batches  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


def make(root: Path, **arguments: Any) -> hr.Loader:
    given: dict[str, Any] = {
        "transform": FLAT,
        "output": hr.Output(ids=True),
        "seed": 3,
    } | arguments
    return hr.Loader(root, 7, **given)


def at_home(batch: Any) -> Any:
    """What tests look at lies on the CPU."""
    return type(batch)(*(field.cpu() for field in batch))


class FakeCopies:
    """A queue that goes on when the test says so."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.marks = 0
        self.done = 0
        self.queued = False

    @contextlib.contextmanager
    def queue(self) -> Iterator[None]:
        assert not self.queued
        self.queued = True
        yield
        self.queued = False

    def move(self, tensor: Any) -> Any:
        assert self.queued
        return tensor.clone()

    def mark(self) -> int:
        assert self.queued
        self.marks += 1
        return self.marks

    def hand_over(self, mark: int, tensors: Sequence[Any]) -> None:
        assert not self.queued
        self.log.append((mark, [int(tensor) for tensor in tensors]))

    def is_done(self, mark: int) -> bool:
        return mark <= self.done

    def wait(self, mark: int) -> None:
        self.log.append(("wait", mark))
        self.done = max(self.done, mark)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCopies:
    copies = FakeCopies()
    monkeypatch.setattr(device_batches, "copies_to", lambda device: copies)
    return copies


class Source:
    """Batches of one number each, of which the test sees whether they are still held."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.alive: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            batch = torch.tensor(number)
            self.alive.append(weakref.ref(batch))
            yield batch
            del batch

    def held(self) -> list[int]:
        gc.collect()
        return [number for number, each in enumerate(self.alive) if each() is not None]


def test_a_batch_is_handed_over_with_its_own_mark_and_what_a_copy_reads_is_held(
    fake: FakeCopies,
) -> None:
    source = Source(6)
    batches = iter(DeviceBatches(source, "cuda", depth=2, prepare=None))
    assert int(next(batches)) == 0
    assert fake.log == [(1, [0])]
    assert source.held() == [0, 1, 2]  # Two are on their way beside the one that was given.
    fake.done = 2
    assert int(next(batches)) == 1
    assert fake.log[1:] == [("wait", 1), ("wait", 2), (2, [1])]
    assert source.held() == [2, 3]
    assert [int(next(batches)) for _ in range(2)] == [2, 3]
    assert fake.log[4:] == [(3, [2]), (4, [3])]
    assert source.held() == [2, 3, 4, 5]  # No copy is done, and nobody waits for one.
    assert int(next(batches)) == 4  # Then somebody does: what is held has a bound.
    assert fake.log[6:] == [("wait", 3), (5, [4])]
    assert source.held() == [3, 4, 5]
    assert [int(batch) for batch in batches] == [5]
    assert source.held() == []


def test_a_loop_left_early_waits_for_copies_before_their_memory_goes(fake: FakeCopies) -> None:
    source = Source(6)
    batches = iter(DeviceBatches(source, "cuda", depth=3))
    next(batches)
    assert source.held() == [0, 1, 2, 3]
    del batches
    assert fake.log == [(1, [0]), ("wait", 1), ("wait", 2), ("wait", 3), ("wait", 4)]
    assert source.held() == []


def test_what_is_done_on_the_device_is_queued_and_handed_over(fake: FakeCopies) -> None:
    def add(tensor: Any) -> Any:
        assert fake.queued
        return tensor + 10

    given = [{"a": torch.tensor(1), "b": torch.tensor(2), "c": "text"}]
    (batch,) = DeviceBatches(given, "cuda", prepare={"b": add})
    assert (int(batch["a"]), int(batch["b"]), batch["c"]) == (1, 12, "text")
    assert fake.log[0] == (1, [1, 12])


@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_the_loader_s_bit_for_bit(numbered: Path, device: str) -> None:
    with make(numbered) as plain:
        expected = [[as_bytes(batch) for batch in plain] for _ in range(2)]
    with make(numbered) as loader:
        batches = DeviceBatches(loader, device)
        assert len(batches) == len(loader)
        for epoch in expected:
            got = []
            for batch in batches:
                assert batch._fields == ("image", "label", "sample_id")
                assert batch.image.device.type == device
                got.append(as_bytes(at_home(batch)))
            assert got == epoch


@pytest.mark.parametrize("device", DEVICES)
def test_any_structure_is_kept(device: str) -> None:
    numbers = np.arange(3)
    names = np.array(["a", "b"])
    given = (numbers, [torch.ones(2), "text"], {"x": hr.Padded(numbers, numbers), "y": names}, 5)
    (got,) = DeviceBatches([given], device)
    assert (type(got), got[1][1], got[2]["y"] is names, got[3]) == (tuple, "text", True, 5)
    assert isinstance(got[2]["x"], hr.Padded)
    for tensor in (got[0], got[1][0], got[2]["x"].data, got[2]["x"].shape):
        assert tensor.device.type == device
    assert got[0].tolist() == got[2]["x"].shape.tolist() == [0, 1, 2]
    (alone,) = DeviceBatches([torch.arange(4)], device)
    assert alone.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("given", ["NCHW", "NHWC"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_normalizing_on_the_device_gives_what_the_loader_gives(
    numbered: Path, device: str, given: str, layout: str
) -> None:
    floats, integers = (
        hr.image.train(8, layout=layout),
        hr.image.train(8, dtype="uint8", layout=given),
    )
    with make(numbered, transform=floats) as loader:
        expected = [batch.image for batch in loader]
    there = Normalize(given=given, layout=layout)
    with make(numbered, transform=integers) as loader:
        got = [batch.image for batch in DeviceBatches(loader, device, prepare={"image": there})]
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)
    if (given, layout) == ("NHWC", "NCHW"):
        assert got[0].is_contiguous(memory_format=torch.channels_last)


def test_normalized_images_have_the_dtype_asked_for() -> None:
    images = torch.tensor([[[[0, 102]], [[51, 255]]]], dtype=torch.uint8)
    there = Normalize((0.5, 0.0), (0.5, 1.0), dtype=torch.float16)
    (got,) = DeviceBatches([(images,)], "cpu", prepare={0: there})
    assert got[0].dtype == torch.float16
    close = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(got[0].float(), torch.tensor([[[[-1, -0.2]], [[0.2, 1]]]]), **close)


def with_sampler() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(9)
    return {"sampler": torch.utils.data.RandomSampler(range(97), generator=generator)}


@pytest.mark.parametrize("given", [dict, with_sampler])
def test_what_is_read_ahead_and_not_given_does_not_count(numbered: Path, given: Any) -> None:
    with make(numbered, **given()) as plain:
        states = [plain.state_dict()]
        expected = []
        for batch in plain:
            expected.append(payload_ids(batch))
            states.append(plain.state_dict())
        following = epoch_ids(plain)
    with make(numbered, **given()) as loader:
        batches = DeviceBatches(loader, "cpu", depth=4)
        got = [batches.state_dict()]
        iteration = iter(batches)
        assert batches.state_dict()["samples"] == 0
        got += [batches.state_dict() for _ in iteration]
        assert got == states
        assert batches.state_dict() == states[-1]
        for number, _ in enumerate(batches, 1):
            if number == 2:
                break
        left = batches.state_dict()
        assert (left["epoch"], left["samples"]) == (1, 14)
    for state, rest in ((states[3], expected[3:]), (left, following[2:])):
        with make(numbered, **given()) as loader:
            batches = DeviceBatches(loader, "cpu")
            batches.load_state_dict(state)
            assert batches.state_dict() == state
            assert epoch_ids(batches) == rest


def test_an_epoch_that_is_set_counts_from_the_next_iteration_on(numbered: Path) -> None:
    with make(numbered) as loader:
        batches = DeviceBatches(loader, "cpu")
        for number, _ in enumerate(batches):
            if number == 1:
                batches.set_epoch(7)
                assert batches.state_dict()["epoch"] == 0
        assert (batches.state_dict()["epoch"], batches.state_dict()["samples"]) == (7, 0)
        for _ in batches:
            batches.set_epoch(4)
            break
        assert (batches.state_dict()["epoch"], batches.state_dict()["samples"]) == (4, 0)
        batches.set_epoch(9)
        assert batches.state_dict()["epoch"] == 9
        with make(numbered) as plain:
            plain.set_epoch(9)
            assert epoch_ids(batches) == epoch_ids(plain)


def test_an_error_comes_after_the_batches_before_it(numbered_copy: Path) -> None:
    with make(numbered_copy) as plain:
        expected = epoch_ids(plain)
    with make(numbered_copy) as loader:
        sample_file(numbered_copy, expected[5][1]).unlink()
        iteration = iter(DeviceBatches(loader, "cpu", depth=3))
        assert [payload_ids(next(iteration)) for _ in range(5)] == expected[:5]
        with pytest.raises(errors.HeadraceError, match=f"{expected[5][1]:03}.jpg"):
            next(iteration)
        with pytest.raises(StopIteration):
            next(iteration)


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_prepare_that_fails_names_field_and_batch_after_those_before_it(
    numbered: Path, kind: type[BaseException]
) -> None:
    def fail(labels: torch.Tensor) -> torch.Tensor:
        calls.append(labels)
        if len(calls) == 6:
            raise kind("no five")
        return labels

    calls: list[torch.Tensor] = []
    with make(numbered) as loader:
        loader.set_epoch(2)
        iteration = iter(DeviceBatches(loader, "cpu", depth=3, prepare={"label": fail}))
        with make(numbered) as plain:
            plain.set_epoch(2)
            expected = epoch_ids(plain)
        assert [payload_ids(next(iteration)) for _ in range(5)] == expected[:5]
        with pytest.raises(errors.TransformError) as caught:
            next(iteration)
        told = f"preparing field 'label' of epoch 2 step 5: {kind.__name__}: no five"
        assert str(caught.value) == told
        assert (caught.value.epoch, caught.value.step) == (2, 5)
        assert isinstance(caught.value.__cause__, kind)
    calls.clear()
    given = [(torch.zeros(1),)] * 6
    with pytest.raises(errors.TransformError, match="field 0 of batch 5 of the iteration: "):
        list(DeviceBatches(given, "cpu", prepare={0: fail}))


def test_a_prepare_that_is_interrupted_is_interrupted() -> None:
    def interrupt(_: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(DeviceBatches([(torch.zeros(1),)], "cpu", prepare={0: interrupt}))


def test_an_older_iteration_says_nothing_of_the_newer_one_s_place(numbered: Path) -> None:
    with make(numbered) as loader:
        batches = DeviceBatches(loader, "cpu", depth=1)
        older = iter(batches)
        next(older)
        newer = iter(batches)
        next(newer)
        state = batches.state_dict()
        next(older)  # It was there already.
        with pytest.raises(errors.FailedPreconditionError, match="a newer one was begun"):
            next(older)
        assert batches.state_dict() == state
        assert len(flat(payload_ids(batch) for batch in newer)) == 90


def test_arguments_that_can_not_be(numbered: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="batches: got 5"):
        DeviceBatches(5, "cpu")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="device: got meta, must be cpu or cuda"):
        DeviceBatches([], "meta")
    for depth in (0, 65):
        with pytest.raises(errors.InvalidArgumentError, match=r"depth: got .* in \[1, 64\]"):
            DeviceBatches([], "cpu", depth=depth)
    with pytest.raises(errors.FailedPreconditionError, match="list for its state"):
        DeviceBatches([], "cpu").state_dict()
    with pytest.raises(errors.InvalidArgumentError, match="as many as channels"):
        Normalize((0.5,), (0.5, 0.5))
    with pytest.raises(errors.InvalidArgumentError, match="layout: got 'CHW'"):
        Normalize(layout="CHW")
    for dtype in (torch.int8, "float16"):
        with pytest.raises(errors.InvalidArgumentError, match=r"floating-point torch\.dtype"):
            Normalize(dtype=dtype)
    with pytest.raises(errors.InvalidArgumentError, match=r"torch\.float32: must be uint8"):
        Normalize()(torch.zeros(1, 3, 2, 2))
    for device in ("nope", 5, None):
        with pytest.raises(errors.InvalidArgumentError, match="device: got"):
            DeviceBatches([], device)
    for prepare in (5, {"image": 7}):
        with pytest.raises(errors.InvalidArgumentError, match=r"prepare: got .* functions"):
            DeviceBatches([], "cpu", prepare=prepare)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="batches: got 'images'"):
        DeviceBatches("images", "cpu")
    with make(numbered) as loader:
        names = "names field 'picture', a batch has image, label, sample_id"
        with pytest.raises(errors.InvalidArgumentError, match=names):
            next(iter(DeviceBatches(loader, "cpu", prepare={"picture": Normalize()})))
        with pytest.raises(
            errors.TransformError, match=r"'image' of epoch 1 step 0.* 8 channels in layout NHWC"
        ):
            next(iter(DeviceBatches(loader, "cpu", prepare={0: Normalize(given="NHWC")})))


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a CUDA device")
def test_without_a_cuda_device_that_is_said() -> None:
    with pytest.raises(errors.FailedPreconditionError, match="torch finds no CUDA device"):
        DeviceBatches([], "cuda")


@needs_cuda
def test_the_loop_s_stream_waits_for_the_copy() -> None:
    big = [torch.full((64, 1024, 1024), number, dtype=torch.uint8) for number in range(8)]
    sums = [batch.sum(dtype=torch.int64) for batch in DeviceBatches(big, "cuda", depth=3)]
    assert [int(each) for each in sums] == [number * 64 * 1024 * 1024 for number in range(8)]
