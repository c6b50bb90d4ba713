"""What workers get of a user's objects: tensors, modules, mapped files; what cannot be sent."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import worker_functions as functions
from rank_scripts import environment, real_packages, run_script
from worker_functions import records, write_records

import headrace as hr
from headrace import errors
from headrace._process.pickling import Sent
from headrace.torch import DataLoader

BATCH = 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("records"))


def sent(value: Any, *, copies: bool = True) -> Any:
    """What another process would get."""
    holder = Sent({"transform": value}, "spawn", "fork", copies=copies)
    return pickle.loads(pickle.dumps(holder)).load()["transform"]


SCRIPT = """
import multiprocessing, sys
import numpy as np
import torch
import headrace as hr


class Normalize(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 3).requires_grad_(False)
        self.linear.weight.copy_(torch.arange(3.0 * width).reshape(3, width))  # exact sums
        self.linear.bias.zero_()
        self.register_buffer("mean", torch.arange(float(width)))
        self.tied = self.linear.weight

    def forward(self, values):
        assert self.tied is self.linear.weight
        return self.linear(values - self.mean)


class Transform:
    def __init__(self, folder, context):
        self.crop = torch.empty(1)  # As v2.RandomResizedCrop has one.
        self.module = Normalize(10)
        self.many = [torch.full((4,), float(n)) for n in range(20)]
        self.seen = torch.zeros(80, dtype=torch.int64).share_memory_()
        self.table = np.load(folder + "/table.npy", mmap_mode="r")
        self.out = np.load(folder + "/out.npy", mmap_mode="r+")
        self.dataset = hr.open(folder + "/table.npy")
        self.count = context.Value("i", 0)

    def __call__(self, sample):
        self.crop.uniform_()  # Each worker has its own.
        with self.count:
            self.count.value += 1
        self.seen[sample.id] = 1
        self.out[sample.id] = sample.id + 0.5
        row = self.dataset.read(sample.id)["value"]
        same = np.array_equal(row, sample.value) and np.array_equal(row, self.table[sample.id])
        total = sum(float(each.sum()) for each in self.many)
        return self.module(torch.from_numpy(sample.value)), same, total


if __name__ == "__main__":
    folder, start, *workers = sys.argv[1:]
    context = multiprocessing.get_context(start)
    if start == "forkserver":
        context.set_forkserver_preload(["torch"])
    data = np.arange(800, dtype=np.float32).reshape(80, 10)
    np.save(folder + "/table.npy", data)
    np.save(folder + "/out.npy", np.zeros(80))
    transform = Transform(folder, context)
    for count in map(int, workers):
        transform.seen.zero_()
        transform.out[:] = 0
        transform.count.value = 0
        way = hr.Workers(count, start=start)
        with hr.Loader(folder + "/table.npy", 8, transform=transform, workers=way) as loader:
            batches = list(loader)
        found = torch.cat([made for made, _, _ in batches])
        expected = transform.module(torch.from_numpy(data))
        order = [int((expected == row).all(1).nonzero()) for row in found]
        assert sorted(order) == list(range(80)), order
        assert all(bool(same.all()) for _, same, _ in batches)
        assert all((total == 760).all() for _, _, total in batches)
        assert transform.seen.tolist() == [1] * 80
        assert np.array_equal(np.load(folder + "/out.npy"), np.arange(80) + 0.5)
        assert transform.count.value >= 80  # They read ahead.
        assert not transform.crop.is_shared()
        assert not transform.module.mean.is_shared()
    print("right")
"""


@pytest.mark.parametrize(
    ("start", "workers"), [("spawn", "24"), ("forkserver", "2442"), ("fork", "24")]
)
def test_workers_get_tensors_modules_mapped_files_datasets_and_locks(
    tmp_path: Path, start: str, workers: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(tmp_path), start, *workers],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("right\n", "")


def mapped(folder: Path, mode: Any, **options: Any) -> np.memmap[Any, Any]:
    file = folder / "mapped.bin"
    file.write_bytes(bytes(16) + np.arange(60, dtype=np.int32).tobytes())
    return np.memmap(file, np.int32, mode, 16, (6, 10), **options)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda array: array,
    "rows": lambda array: array[2:5],
    "a row": lambda array: array[3],
    "every other": lambda array: array[::2, ::3],
    "backwards": lambda array: array[::-1, ::-2],
    "turned": lambda array: array.T[1:],
    "another type": lambda array: array.view(np.uint8)[1:],
    "an array": lambda array: np.asarray(array)[1:, 4:],
    "one value": lambda array: array[2:3, 2:3],
    "none": lambda array: array[:0],
}


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_mapped_file_is_mapped_in_the_worker_too(tmp_path: Path, view: str, mode: str) -> None:
    array = VIEWS[view](mapped(tmp_path, mode))
    again = sent(array)
    assert type(again) is type(array)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)
    if array.size:
        assert again.flags.writeable is (mode == "r+")
        assert len(pickle.dumps(Sent({"": array}, "", "", copies=True))) < 1000
    if mode == "r+" and array.size:
        again[...] = 7  # Both are the file.
        assert (array == 7).all()
    assert np.array_equal(sent(again), array)  # A worker can send it on.


def test_columns_first_and_records_are_mapped_too(tmp_path: Path) -> None:
    array = mapped(tmp_path, "r", order="F")
    assert np.array_equal(sent(array), array)
    pairs = np.memmap(tmp_path / "mapped.bin", [("a", "i4"), ("b", "f4", (2,))], "r", 4, (5,))
    assert np.array_equal(sent(pairs)["b"], pairs["b"], equal_nan=True)
    assert np.array_equal(sent(pairs["a"]), pairs["a"])


@pytest.mark.parametrize("change", ["private", "replaced", "removed"])
def test_a_mapping_that_the_file_no_longer_holds_is_copied(tmp_path: Path, change: str) -> None:
    array = mapped(tmp_path, "c" if change == "private" else "r")
    if change == "private":
        array[0, 0] = 99
    else:
        (tmp_path / "mapped.bin").unlink()
        if change == "replaced":
            (tmp_path / "mapped.bin").write_bytes(bytes(1000))
    again = sent(array)
    assert np.array_equal(again, array)
    assert int(again[0, 0]) == (99 if change == "private" else 0)


TENSORS = {
    "plain": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.ones(3, dtype=torch.bfloat16),
    "a view": torch.arange(10)[2:8:2],
    "sparse": torch.eye(3).to_sparse(),
    "a parameter": torch.nn.Parameter(torch.ones(2)),
    "empty": torch.empty(0, 3),
    "complex": torch.tensor([1 + 2j]).conj(),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_is_copied_as_it_is(kind: str) -> None:
    tensor = TENSORS[kind]
    again = sent([tensor, tensor])
    assert again[0] is again[1]
    assert type(again[0]) is type(tensor)
    assert again[0].dtype == tensor.dtype
    assert again[0].requires_grad == tensor.requires_grad
    assert torch.equal(again[0].to_dense(), tensor.to_dense())
    assert kind == "sparse" or not tensor.is_shared()  # torch's own way would have moved it.


class Holds:
    """A transform with attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, sample: hr.Sample) -> Any:
        return sample.record


class WithSlots:
    __slots__ = ("file", "number")

    def __init__(self, file: Any) -> None:
        self.file, self.number = file, 1

    def __call__(self, sample: hr.Sample) -> Any:
        return sample.record


class Handle(Mapping[str, Any]):
    """As an h5py file: open, of one process, and a mapping of such objects."""

    def __getitem__(self, name: str) -> Any:
        return Handle()

    def __iter__(self) -> Iterator[str]:
        return iter(["rows"])

    def __len__(self) -> int:
        return 1

    def __getnewargs__(self) -> Any:
        raise TypeError("h5py objects cannot be pickled")


def made_inside() -> tuple[Any, Any]:
    def inner(sample: hr.Sample) -> Any:
        return sample.record

    class Inner:
        def __call__(self, sample: hr.Sample) -> Any:
            return sample.record

    return inner, Inner()


def refused() -> dict[str, tuple[Any, str, str]]:
    """What cannot be sent; how it is named; the way out."""
    top, fork = "at the top of a module", 'workers=hr.Workers(2, start="fork")'
    to_top, first = "to the top of a module", "make it in the worker at its first use"
    inner, instance = made_inside()
    module = torch.nn.Sequential(torch.nn.Identity())
    module.fn = lambda values: values  # type: ignore[assignment]
    return {
        "a lambda": (lambda sample: 1, "transform is a lambda (test_workers_sent.py, line ", top),
        "its way": (lambda sample: 1, "transform is a lambda", fork),
        "a function": (inner, "transform is the function inner inside made_inside", to_top),
        "a class": (instance, "type(transform) is the class Inner inside made_inside", to_top),
        "an attribute": (Holds(fn=lambda: 1), "transform.fn is a lambda", top),
        "deep": (
            Holds(parts=[len, {"k": Holds(lock=threading.Lock())}]),
            "transform.parts[1]['k'].lock is of type _thread.lock",
            first,
        ),
        "a handle": (
            Holds(file=Handle()),
            "transform.file is of type test_workers_sent.Handle (Ty",
            first,
        ),
        "a slot": (WithSlots(n for n in "a"), "transform.file is of type generator", first),
        "of a module": (module, "transform.fn is a lambda", top),
        "a method": (Holds(fn=lambda: 1).__call__, "transform.__self__.fn is a lambda", top),
        "a partial": (
            functools.partial(functions.fork_and_die, pipe=lambda: 1),
            "transform.keywords['pipe'] is a lambda",
            fork,
        ),
    }


@pytest.mark.parametrize("case", refused())
def test_what_cannot_be_sent_is_named_with_a_way_out(path: Path, case: str) -> None:
    transform, name, way_out = refused()[case]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.Loader(path, BATCH, transform=transform, workers=2)
    text = str(caught.value)
    assert text.startswith(name)
    assert "as hr.Workers(start='spawn') needs" in text
    assert way_out in text


def test_other_functions_and_loaders_are_named_too(path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"Workers\.collate_fn is a lambda"):
        hr.Loader(path, BATCH, workers=hr.Workers(1, collate_fn=lambda rows: rows))
    with pytest.raises(errors.InvalidArgumentError, match=r"Workers\.init_fn is a lambda"):
        hr.Loader(
            path,
            BATCH,
            transform=functions.record,
            workers=hr.Workers(1, init_fn=lambda number: None, start="forkserver"),
        )
    with (
        hr.Loader(path, BATCH) as loader,
        pytest.raises(
            errors.InvalidArgumentError,
            match=r"(?s)transform.loader is of type headrace.*it owns threads and memory",
        ),
    ):
        hr.Loader(path, BATCH, transform=Holds(loader=loader), workers=1)


def test_the_way_out_by_fork_works(path: Path) -> None:
    for transform in (made_inside()[0], Holds(fn=lambda: 1), lambda sample: sample.record):
        way = hr.Workers(2, start="fork")
        with hr.Loader(path, BATCH, transform=transform, workers=way, shuffle=False) as loader:
            assert torch.equal(next(iter(loader)), torch.tensor(records()[:BATCH]))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataloader_names_what_cannot_be_sent(method: str) -> None:
    dataset: Any = torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.arange(9)), [1, 2])
    dataset.transform = lambda row: row
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context=method, timeout=60)
    with pytest.raises(errors.InvalidArgumentError, match=r"dataset\.transform is a lam") as caught:
        next(iter(loader))
    assert 'multiprocessing_context="fork"' in str(caught.value)


PROMPT = """
import headrace as hr
def prepare(sample):
    return sample.record
loader = hr.Loader({path!r}, 10, transform=prepare, workers={workers})
print(len(next(iter(loader))))
"""


@pytest.mark.parametrize("way", ["-c", "-"])
def test_a_function_of_a_prompt_is_refused_with_a_way_out(path: Path, way: str) -> None:
    def run(workers: str) -> subprocess.CompletedProcess[str]:
        code = PROMPT.format(path=str(path), workers=workers)
        return subprocess.run(
            [sys.executable, way, *([code] if way == "-c" else [])],
            input=None if way == "-c" else code,
            capture_output=True,
            text=True,
            timeout=280,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    last = run("2").stderr.splitlines()[-1]
    assert "transform is the function prepare of a notebook, a prompt or python -c" in last
    way_out = last.partition("or take workers=")[2]
    assert run(way_out).stdout == "10\n"


class Several(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(7))


PAGE = """
import sys
import headrace as hr
BLOCK

if __name__ == "__main__":
    with sqlite3.connect(sys.argv[2]) as made:
        made.execute("CREATE TABLE classes (number INTEGER, name TEXT)")
        rows = [(3 * number, f"n{number}") for number in range(103)]
        made.executemany("INSERT INTO classes VALUES (?, ?)", rows)
    made.close()
    transform = Labels(sys.argv[2])
    with hr.Loader(sys.argv[1], 10, transform=transform, workers=2, shuffle=False) as loader:
        print(*(name for _, names in loader for name in names))
"""


def test_what_the_page_shows_for_connections_works(path: Path, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "workers.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "sqlite3" in each)
    script = tmp_path / "page.py"
    script.write_text(PAGE.replace("BLOCK", block))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(path), str(tmp_path / "classes.db")],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout.split(), done.stderr) == ([f"n{n}" for n in range(103)], "")


def in_a_daemon(told: Any, path: Path) -> None:
    def attempt(run: Callable[[], Any]) -> str:
        try:
            return f"gives {run()}"
        except errors.FailedPreconditionError as error:
            return str(error)

    def of_loader(workers: Any) -> int:
        with hr.Loader(path, BATCH, transform=functions.record, workers=workers) as loader:
            return sum(map(len, loader))

    dataset = torch.utils.data.TensorDataset(torch.arange(7))
    plain = torch.utils.data.Subset(dataset, range(7))
    told.send(
        [
            attempt(lambda: of_loader(2)),
            attempt(lambda: of_loader(hr.Workers(2, start="fork"))),
            attempt(lambda: of_loader(0)),
            attempt(lambda: len(list(DataLoader(plain, num_workers=1, collate_fn=list)))),
            attempt(lambda: len(list(DataLoader(Several(), num_workers=1, collate_fn=list)))),
            attempt(lambda: len(list(DataLoader(plain, num_workers=0, collate_fn=list)))),
            attempt(
                lambda: len(
                    list(DataLoader(plain, num_workers=1, collate_fn=list, worker_method="thread"))
                )
            ),
        ]
    )


@pytest.mark.parametrize("daemon", [True, False])
def test_workers_in_a_daemonic_process_are_refused_with_ways_out(path: Path, daemon: bool) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=in_a_daemon, args=(theirs, path), daemon=daemon)
    process.start()
    spawned, forked, inline, workers, streams, none, threads = ours.recv()
    process.join()
    assert inline == f"gives {len(records())}"
    assert (none, threads) == ("gives 7", "gives 7")
    if not daemon:
        assert spawned == forked == inline
        assert workers == streams == none
        return
    for text, way_out in (
        (spawned, "give the loader workers=0; or start it with daemon=False"),
        (forked, "give the loader workers=0; or start it with daemon=False"),
        (streams, "give DataLoader num_workers=0; or"),
        (workers, 'give DataLoader num_workers=0 or worker_method="thread"'),
    ):
        assert "is daemonic" in text
        assert way_out in text


TORCHVISION = """
import sys
import torch
torch.library.register_fake = lambda *_: lambda function: function  # Its operators need CUDA.
from torchvision.transforms import v2
import headrace as hr

augment = v2.Compose([v2.RandomResizedCrop(24), v2.ToDtype(torch.float32, scale=True)])

if __name__ == "__main__":
    made = []
    for workers in (0, 2, 4):
        with hr.Loader(sys.argv[1], 8, transform=augment, workers=workers) as loader:
            made.append(torch.cat([image for image, _ in loader]))
    print(made[0].shape, [torch.equal(made[0], each) for each in made], made[0].std() > 0.1)
"""


@pytest.mark.foreign
def test_the_page_s_transform_of_torchvision_runs_in_any_number_of_workers(
    original: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TORCHVISION)
    done = run_script(script, original, env=environment(real_packages("torchvision")))
    assert done.err == ""
    assert done.out == "torch.Size([60, 3, 24, 24]) [True, True, True] tensor(True)\n"
