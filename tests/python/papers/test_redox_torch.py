"""Redox's place in torch's DataLoader: a sampler whose numbers are the order's, and a fetcher."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat, sample_file

import headrace as hr
from headrace import errors

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset, default_collate  # noqa: E402

import headrace.torch  # noqa: E402
from headrace.papers.redox import RedoxFetcher, RedoxSampler, Requests  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

ORDERS = {
    "exact": hr.orders.Exact(),
    "batch": hr.orders.Batch(),
    "epoch": hr.orders.Epoch(pools=3, block_samples=4),
    "redox": hr.orders.Redox(block_samples=4, chunks_per_virtual=5),
    "redox of nodes": hr.orders.Redox(block_samples=4, nodes=2, prefetch=8, arrival=True),
}


def make(source: Any, order: str = "redox", **arguments: Any) -> hr.Loader:
    given: dict[str, Any] = {
        "transform": FLAT,
        "seed": 3,
        "output": hr.Output(ids=True),
    } | arguments
    return hr.Loader(source, given.pop("batch_size", 16), order=ORDERS[order], **given)


class Numbers(Dataset[int]):
    """A map-style dataset whose sample i is i."""

    def __getitem__(self, number: int) -> int:
        return number

    def __len__(self) -> int:
        return COUNT


def numbers(sampler: RedoxSampler) -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_sampler=sampler)


def fetched(fetcher: RedoxFetcher, **arguments: Any) -> DataLoader[Any]:
    return DataLoader(fetcher, batch_sampler=fetcher.sampler, **arguments)


def of(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def number_and_pixel(sample: hr.Sample) -> tuple[int, int]:
    return sample.id, int(sample.image[0, 0, 0])


def drawn(sample: hr.Sample) -> tuple[int, int]:
    return sample.id, int(sample.rng.integers(1 << 40))


def leave(sample: hr.Sample) -> int:
    sys.exit(3)


def fails_at_seven(sample: hr.Sample) -> int:
    if sample.id == 7:
        raise ValueError("this one")
    return sample.id


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_the_numbers_are_those_that_the_loader_gives(
    numbered: Path, order: str, drop_last: bool
) -> None:
    with make(numbered, order, drop_last=drop_last, epochs=2) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
    with make(numbered, order, drop_last=drop_last, epochs=2) as loader:
        sampler = RedoxSampler(loader)
        batches = numbers(sampler)
        assert len(batches) == len(loader)
        assert [of(batches) for _ in range(2)] == expected
        with pytest.raises(errors.FailedPreconditionError, match="made for epochs=2"):
            iter(sampler)
        assert loader.stats()["io"]["reads"] == 0


@pytest.mark.parametrize("order", ORDERS)
def test_the_fetcher_gives_the_loader_s_batches(numbered: Path, order: str) -> None:
    with make(numbered, order) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
    with make(numbered, order) as loader:
        fetcher = RedoxFetcher(loader)
        batches = fetched(fetcher)
        assert (len(fetcher), len(batches)) == (COUNT, len(loader))
        assert [epoch_ids(batches) for _ in range(2)] == expected
        assert [set(flat(each)) for each in expected] == [set(range(COUNT))] * 2
        fetcher.close()


def test_an_epoch_is_read_ahead_while_the_one_before_ends(numbered: Path) -> None:
    """The loader is not started anew for the next epoch: it would read what it has again."""
    with make(numbered, "exact", memory="64MiB", epochs=3) as loader:
        fetcher = RedoxFetcher(loader)
        batches = fetched(fetcher)
        for _ in range(3):
            for _ in batches:
                pass
        assert loader.stats()["io"]["reads"] == 3 * COUNT
        fetcher.close()


def test_loops_may_end_early(numbered: Path) -> None:
    with make(numbered) as loader:
        expected = []
        for epoch in (0, 1, 2, 5):
            loader.set_epoch(epoch)
            expected.append(epoch_ids(loader))
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        batches = fetched(fetcher)
        assert epoch_ids(batches) == expected[0]
        for taken, batch in enumerate(batches, 1):
            if taken == 2:
                assert batch.sample_id.tolist() == expected[1][1]
                break
        assert epoch_ids(batches) == expected[2]
        fetcher.sampler.set_epoch(5)
        assert epoch_ids(batches) == expected[3]
        fetcher.close()


@pytest.mark.parametrize("order", ["exact", "epoch", "redox"])
def test_a_state_goes_on_with_the_next_batch(numbered: Path, order: str) -> None:
    with make(numbered, order) as loader:
        first, second = epoch_ids(loader), epoch_ids(loader)
    with make(numbered, order) as loader:
        fetcher = RedoxFetcher(loader)
        batches = fetched(fetcher)
        assert fetcher.sampler.state_dict(0)["samples"] == 0
        for taken, _ in enumerate(batches, 1):
            if taken == 3:
                break
        state = pickle.loads(pickle.dumps(fetcher.sampler.state_dict(taken)))
        assert (state["epoch"], state["samples"]) == (0, 48)
        with pytest.raises(errors.InvalidArgumentError, match="batches: got 8, must be in"):
            fetcher.sampler.state_dict(8)
        fetcher.close()
    with make(numbered, order) as loader:  # A fetcher,
        fetcher = RedoxFetcher(loader)
        fetcher.sampler.load_state_dict(state)
        batches = fetched(fetcher)
        assert epoch_ids(batches) == first[3:]
        assert fetcher.sampler.state_dict(4)["epoch"] == 1
        assert epoch_ids(batches) == second
        fetcher.close()
    with make(numbered, order) as loader:  # a sampler alone,
        sampler = RedoxSampler(loader)
        sampler.load_state_dict(state)
        assert of(numbers(sampler)) == first[3:]
        assert of(numbers(sampler)) == second
    with make(numbered, order) as loader:  # or a Loader.
        loader.load_state_dict(state)
        assert epoch_ids(loader) == first[3:]


def test_a_state_of_other_ranks_goes_on(numbered: Path) -> None:
    arguments: dict[str, Any] = {"drop_last": True, "batch_size": 8}
    with make(numbered, "exact", drop_last=True) as loader:
        sampler = RedoxSampler(loader)
        whole = of(numbers(sampler))
        state = sampler.state_dict(2)
    shares = []
    for rank in range(2):
        job = hr.Job(rank=rank, world_size=2)
        with make(numbered, "exact", job=job, **arguments) as loader:
            fetcher = RedoxFetcher(loader)
            fetcher.sampler.load_state_dict(state)
            shares.append(epoch_ids(fetched(fetcher)))
            fetcher.close()
    rows = [sorted(a + b) for a, b in zip(*shares, strict=True)]
    assert rows == [sorted(step) for step in whole[2:]]


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_divide_the_epoch(numbered: Path, order: str) -> None:
    seen = []
    for rank in range(2):
        place: dict[str, Any] = {"job": hr.Job(rank=rank, world_size=2)}
        with make(numbered, order, **place) as loader:
            expected = epoch_ids(loader)
        with make(numbered, order, **place) as loader:
            fetcher = RedoxFetcher(loader)
            assert of(numbers(RedoxSampler(loader))) == expected
            assert epoch_ids(fetched(fetcher)) == expected
            fetcher.close()
        seen += flat(expected)
    assert set(seen) == set(range(COUNT))


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox"])
def test_the_engine_may_be_a_node_process(numbered: Path, order: str) -> None:
    with make(numbered, order) as loader:
        expected = epoch_ids(loader)
    with make(numbered, order, job=hr.Job(node=hr.Node())) as loader:
        fetcher = RedoxFetcher(loader)
        assert of(numbers(RedoxSampler(loader))) == expected
        assert epoch_ids(fetched(fetcher)) == expected
        fetcher.close()


def test_numbers_are_a_plain_list_for_any_dataset(numbered: Path) -> None:
    with make(numbered) as loader:
        requests = next(iter(RedoxSampler(loader)))
    assert isinstance(requests, Requests)
    assert requests == list(requests)
    again = pickle.loads(pickle.dumps(requests))
    assert (again, again.epoch, again.step) == (list(requests), 0, 0)


def test_transforms_and_collation_are_dataloader_s(numbered: Path) -> None:
    with make(numbered, transform=hr.image.train(8, dtype="uint8", layout="NHWC")) as loader:
        fetcher = RedoxFetcher(loader, number_and_pixel)
        batches = fetched(fetcher, collate_fn=default_collate)
        for ids, pixels in batches:
            assert ids.tolist() == pixels.tolist()
        fetcher.close()


def test_an_error_of_a_transform_comes_in_its_place(numbered: Path) -> None:
    with make(numbered, "exact", shuffle=False, batch_size=4) as loader:
        fetcher = RedoxFetcher(loader, fails_at_seven)
        batches = iter(fetched(fetcher))
        assert next(batches).tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="this one") as caught:
            next(batches)
        assert caught.value.__notes__ == ["transforming epoch 0 step 1 slot 3 sample 7"]
        assert next(batches).tolist() == [8, 9, 10, 11]  # As of any map-style dataset.
        fetcher.close()


def test_a_transform_draws_what_it_does_in_the_loader(numbered: Path) -> None:
    with make(numbered, transform=drawn, output="auto", workers=0) as loader:
        expected = [[part.tolist() for part in batch] for batch in loader]
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader, drawn)
        assert [[part.tolist() for part in batch] for batch in fetched(fetcher)] == expected
    assert len({draw for _, draws in expected for draw in draws}) == COUNT


def test_encoded_images_come_as_they_are_stored(numbered: Path) -> None:
    with make(numbered, "exact", transform=None, shuffle=False) as loader:
        samples = flat(fetched(RedoxFetcher(loader), collate_fn=list))
        assert samples[0]._fields == ("image", "label", "sample_id")
    assert [sample.image.numpy().tobytes() for sample in samples] == [
        sample_file(numbered, number).read_bytes() for number in range(COUNT)
    ]


def test_a_transform_that_calls_exit_ends_no_process(numbered: Path) -> None:
    with make(numbered) as loader:
        batches = fetched(RedoxFetcher(loader, leave))
        with pytest.raises(
            errors.TransformError, match=r"epoch 0 step 0 slot 0 sample \d+: SystemExit: 3"
        ):
            next(iter(batches))


def test_an_error_of_the_loader_ends_the_iteration(numbered_copy: Path) -> None:
    with make(numbered_copy) as loader:
        expected = epoch_ids(loader)
    with make(numbered_copy) as loader:
        number = expected[5][1]
        sample_file(numbered_copy, number).unlink()
        batches = iter(fetched(RedoxFetcher(loader)))
        assert [next(batches).sample_id.tolist() for _ in range(5)] == expected[:5]
        with pytest.raises(errors.HeadraceError, match=f"{number:03}.jpg"):
            next(batches)
        with pytest.raises(
            errors.UnavailableError, match="fetching epoch 0 step 6: an error ended this iteration"
        ):
            next(batches)


def test_a_fetcher_that_is_closed_ends_its_iteration(numbered: Path) -> None:
    with make(numbered) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        batches = iter(fetched(fetcher))
        assert next(batches).sample_id.tolist() == expected[0][0]
        fetcher.close()
        assert epoch_ids(loader) == expected[1]  # It stays open.


def test_a_loop_goes_not_on_after_close(numbered: Path) -> None:
    with make(numbered) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        batches = fetched(fetcher)
        loop = iter(batches)
        assert next(loop).sample_id.tolist() == expected[0][0]
        fetcher.close()
        with pytest.raises(errors.FailedPreconditionError) as refused:
            next(loop)
        assert str(refused.value) == (
            "fetching epoch 0 step 1: this iteration was closed; iterate the DataLoader again"
        )
        assert loader.epoch == 0  # No other epoch was begun.
        assert epoch_ids(batches) == expected[1]
        fetcher.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_headrace_s_dataloader_takes_the_sampler(numbered: Path, workers: int) -> None:
    def made(loader: hr.Loader) -> headrace.torch.DataLoader:
        sampler = RedoxSampler(loader)
        return headrace.torch.DataLoader(Numbers(), batch_sampler=sampler, num_workers=workers)

    with make(numbered) as loader:
        expected = [epoch_ids(loader) for _ in range(3)]
    with make(numbered) as loader:
        batches = made(loader)
        assert [of(batches), of(batches)] == expected[:2]
        taken = iter(batches)
        assert [next(taken).tolist() for _ in range(2)] == expected[2][:2]
        state = pickle.loads(pickle.dumps(batches.state_dict()))
        del taken
        batches.close()
        again = made(loader)
        again.load_state_dict(state)
        assert of(again) == expected[2][2:]
        again.close()


def test_headrace_s_dataloader_takes_the_fetcher(numbered: Path) -> None:
    with make(numbered) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        batches = headrace.torch.DataLoader(fetcher, batch_sampler=fetcher.sampler)
        assert [epoch_ids(batches), epoch_ids(batches)] == expected
        fetcher.sampler.set_epoch(0)
        next(iter(batches))
        state = batches.state_dict()
        fetcher.close()
        again = RedoxFetcher(loader)
        batches = headrace.torch.DataLoader(again, batch_sampler=again.sampler)
        batches.load_state_dict(state)
        with pytest.raises(
            errors.FailedPreconditionError,
            match=r"of epoch 0 step 1, must be step 0: .*restore a place with sampler\.load",
        ):
            next(iter(batches))
        again.close()


def test_a_loader_that_is_moved_beside_its_sampler_is_found_out(numbered: Path) -> None:
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        batches = iter(fetched(fetcher))
        loader.set_epoch(60)
        with pytest.raises(errors.FailedPreconditionError) as refused:
            next(batches)
        assert str(refused.value) == (
            "fetching epoch 0 step 0: the loader gave other samples: its position was set beside "
            "the sampler's; use sampler.set_epoch() or sampler.load_state_dict()"
        )
        fetcher.close()


def test_arguments_that_can_not_be(numbered: Path) -> None:
    with (
        make(numbered, transform=number_and_pixel, output="auto", workers=0) as loader,
        pytest.raises(errors.InvalidArgumentError, match="give the transform here"),
    ):
        RedoxFetcher(loader)
    with make(numbered) as loader:
        with pytest.raises(errors.InvalidArgumentError, match="transform: got 5"):
            RedoxFetcher(loader, 5)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match=r"the class Dropout, .*call it"):
            RedoxFetcher(loader, torch.nn.Dropout)
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        RedoxFetcher(loader)


@pytest.mark.parametrize(
    ("start", "doing"),
    [
        ("fork", "asking a RedoxFetcher for samples in a worker of DataLoader's"),
        ("spawn", "pickling a RedoxFetcher, as for a worker of DataLoader's"),
    ],
)
def test_workers_of_dataloader_s_are_refused(numbered: Path, start: str, doing: str) -> None:
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        refused = fetched(fetcher, num_workers=1, multiprocessing_context=start)
        with pytest.raises(
            errors.FailedPreconditionError,
            match=doing
            + r": .* give DataLoader num_workers=0; .*hr\.Loader\(path, 256, transform=p",
        ):
            next(iter(refused))
        expected = [list(requests) for requests in RedoxSampler(loader)]
        fetcher.sampler.set_epoch(0)
        assert epoch_ids(fetched(fetcher)) == expected


def test_what_is_not_the_sampler_s_is_refused(numbered: Path) -> None:
    with make(numbered) as loader:
        fetcher = RedoxFetcher(loader)
        with pytest.raises(errors.InvalidArgumentError, match="gives whole batches"):
            fetcher[0]
        with pytest.raises(errors.InvalidArgumentError, match=r"batch_sampler=fetcher\.sampler"):
            next(iter(DataLoader(fetcher, batch_size=4, shuffle=True)))
        out_of_turn = next(iter(fetcher.sampler))
        assert isinstance(out_of_turn, Requests)
        out_of_turn.step = 5
        with pytest.raises(errors.FailedPreconditionError, match="step 5, must be step 0"):
            fetcher.__getitems__(out_of_turn)
        older = iter(fetcher.sampler)
        next(older)
        iter(fetcher.sampler)
        with pytest.raises(errors.FailedPreconditionError, match="a newer one was begun"):
            next(older)
        fetcher.close()
    with (
        make(numbered, "exact", sampler=[1, 2, 3]) as loader,
        pytest.raises(errors.InvalidArgumentError, match="it has a sampler"),
    ):
        RedoxSampler(loader)
    with pytest.raises(errors.InvalidArgumentError, match=r"must be a headrace\.Loader"):
        RedoxSampler(numbered)  # type: ignore[arg-type]
    with make(numbered) as loader:
        sampler = RedoxSampler(loader)
    with pytest.raises(errors.FailedPreconditionError, match="the loader is closed"):
        iter(sampler)
