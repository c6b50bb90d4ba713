"""What each format must do: its own reader's rows, in every order, with tiers, workers, resumes."""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_readers import own_samples
from rank_scripts import real_packages

import headrace as hr
from headrace import errors, orders
from headrace.formats import Format
from headrace.tiers import Ram, Ssd

Rows = list[dict[str, Any]]

ORDERS: dict[str, Any] = {
    "exact": "exact",
    "batch": "batch",
    "epoch": "epoch",
    "small-pool": orders.Epoch(pool="50%", pools=2, block_samples=3),
    "redox": orders.Redox(chunks_per_virtual=4, block_samples=3),
}
BATCH = 6


def write_with_packages(script: Path, folder: Path, what: str) -> Path:
    """Runs a script that writes `folder` with the real packages of tools/envs/loaders.txt."""
    packages = [str(real_packages(name)) for name in ("loaders", "trainers")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    command = [sys.executable, str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def plain(value: Any) -> Any:
    """A value that can be compared: bytes, or lists with a dtype."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    array = np.asarray(value)
    return array.dtype.name, array.shape, array.tobytes()


def like(found: Any, wanted: Any) -> Any:
    """What a batch holds, as a dataset reads it: bytes are arrays in a batch."""
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        return [like(*each) for each in zip(found, wanted, strict=True)]
    return bytes(found) if isinstance(wanted, bytes) else found


def check_rows(path: str | Path, row: Format | None = None) -> tuple[hr.Dataset, Rows]:
    """Opens the dataset; each sample must be that of the format's own reader."""
    dataset = hr.open(path, format=row)
    own = list(own_samples(dataset.format_row, str(path)))
    assert len(dataset) == len(own)
    for mine, theirs in zip(dataset, own, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert plain(mine[name]) == plain(theirs[name]), name
    return dataset, own


def loader_of(dataset: hr.Dataset, order: Any, **options: Any) -> hr.Loader:
    defaults: dict[str, Any] = {
        "output": hr.Output("numpy", ids=True),
        "seed": 5,
        "memory": "64MiB",
    }
    return hr.Loader(dataset, BATCH, order=order, **defaults | options)


def check_batch(batch: Any, own: Rows, fields: Sequence[str]) -> list[int]:
    """Each row must be that of its sample; the samples."""
    ids = [int(number) for number in batch.sample_id]
    for name, column in zip(fields, batch, strict=False):
        for number, value in zip(ids, column, strict=True):
            wanted = own[number][name]
            assert plain(like(value, wanted)) == plain(wanted), (number, name)
    return ids


@pytest.mark.filterwarnings("ignore:headrace")
def check_orders(dataset: hr.Dataset, own: Rows, tmp_path: Path) -> None:
    """Every order: exactly once an epoch, the same with tiers, and after a resume at each step."""
    everything = list(range(len(own)))
    for name, order in ORDERS.items():
        with loader_of(dataset, order) as loader:
            whole = [[check_batch(b, own, dataset.fields) for b in loader] for _ in range(2)]
        for epoch in whole:
            assert sorted(number for batch in epoch for number in batch) == everything
        flat = [batch for epoch in whole for batch in epoch]
        for tiers in ([Ram("1MiB")], [Ssd(tmp_path / f"tier-{name}", "4MiB")]):
            with loader_of(dataset, order, tiers=tiers) as loader:
                assert whole == [
                    [check_batch(b, own, dataset.fields) for b in loader] for _ in range(2)
                ]
        for step in range(1, len(flat), max(1, len(flat) // 6)):
            with loader_of(dataset, order) as loader:
                batches = (batch for _ in range(2) for batch in loader)
                for _ in range(step):
                    next(batches)
                state = loader.state_dict()
            with loader_of(dataset, order) as loader:
                loader.load_state_dict(state)
                (batch, *_) = loader
                assert check_batch(batch, own, dataset.fields) == flat[step]


def taken_apart(sample: hr.Sample) -> dict[str, Any]:
    """A transform for workers: the sample's number, and each value."""
    return {"id": sample.id} | {name: sample[name] for name in sample.keys()}  # noqa: SIM118


def check_workers(dataset: hr.Dataset, own: Rows) -> None:
    """Worker processes get the samples as a batch has them."""
    output = hr.Output("numpy", ragged="list")
    options: dict[str, Any] = {"transform": taken_apart, "workers": 2, "output": output}
    with loader_of(dataset, "exact", **options) as loader:
        seen = []
        for batch in loader:
            for position, number in enumerate(map(int, batch["id"])):
                seen.append(number)
                for name, wanted in own[number].items():
                    found = batch[name][position]
                    found = bytes(found) if isinstance(wanted, bytes) else found
                    assert plain(found) == plain(wanted), name
    assert sorted(seen) == list(range(len(own)))


# Damage.


def check_damage(
    files: Sequence[Path],
    open_it: Callable[[], hr.Dataset],
    parts: Callable[[int], Sequence[int]],
    rounds: int = 300,
) -> int:
    """Changes bytes that describe the data, and lengths of files, at random.

    Each time the dataset opens, with whatever values, or is refused by an error that names a
    file; it never ends in another exception. `parts(size)`: the bytes of a file of this size that
    describe the data. A quarter of the rounds are run, all with HEADRACE_SOAK=1; returns how often
    it was refused in `rounds`, at that rate.
    """
    draw = random.Random(7)
    run = rounds if os.environ.get("HEADRACE_SOAK") == "1" else rounds // 4
    good = [path.read_bytes() for path in files]
    refused = 0
    for number in range(run):
        which = number % len(files)
        data = bytearray(good[which])
        described = parts(len(data))
        if number % 5 == 0:
            data = data[: draw.randrange(len(data))]
        elif number % 5 == 1:
            at = draw.choice(described)
            data[at:at] = draw.randbytes(draw.randrange(1, 20))
        else:
            for _ in range(draw.randrange(1, 4)):
                data[draw.choice(described)] = draw.choice([0, 255, 0x80, draw.randrange(256)])
        files[which].write_bytes(data)
        refusal = _refusal(open_it)
        files[which].write_bytes(good[which])
        if refusal is not None:
            refused += 1
            assert files[which].stem in refusal, refusal
    return refused * rounds // run


def _refusal(open_it: Callable[[], hr.Dataset]) -> str | None:
    """The error that the dataset is refused with."""
    try:
        dataset = open_it()
        for sample in range(min(len(dataset), 3)):
            dataset.read(sample)
    except (errors.DataLossError, errors.InvalidArgumentError) as error:
        return str(error)
    return None


def calls(message: str) -> list[str]:
    """The calls of `hr.open` in a message, which end where their brackets do."""
    found = []
    for at in (each.start() for each in re.finditer(r"hr\.open\(", message)):
        end = message.index("(", at)
        depth = 0
        while True:
            depth += {"(": 1, ")": -1}.get(message[end], 0)
            end += 1
            if depth == 0:
                break
        found.append(message[at:end])
    return found


def formats_in(message: str) -> list[Format]:
    """Each `format=hr.formats.NAME(...)` of the message, as it stands."""
    found = []
    for match in re.finditer(r"format=(hr\.formats\.\w+\()", message):
        text = message[match.start(1) :]
        for end in range(len(text)):
            if text[end] == ")" and _is_python(text[: end + 1]):
                found.append(eval(text[: end + 1], {"hr": hr, "nan": float("nan")}))
                break
    return found


def _is_python(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True
