"""headrace on a Ray cluster of three raylets: packs, indexes, node processes.

HEADRACE_RAY_KILLS=30 kills as often; 3 is the default.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import run
from loader_data import COUNT, flat, write_numbered
from node_ranks import is_running, wait_for_end
from rank_scripts import real_packages
from ray_process import PATIENCE_S, OnRay

import headrace as hr
from cluster.network import free_ports
from headrace.pack import PackParameters, write_pack

pa = pytest.importorskip("pyarrow")

PAGE = Path(__file__).parents[3] / "docs" / "ray.md"
KILLS = int(os.environ.get("HEADRACE_RAY_KILLS", "3"))
SMALL = PackParameters(block_bytes=1_000, shard_bytes=2_000)
FILES = 60
STEPS = 5


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRay]:
    packages = [str(real_packages(name)) for name in ("ray", "hdf5")]
    with OnRay(packages, tmp_path_factory.mktemp("ray") / "log") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbered(tmp_path_factory.mktemp("numbered") / "images")


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The pack that one process makes."""
    target = tmp_path_factory.mktemp("expected")
    write_pack(hr.open(source, index=target / "source.hri"), target / "pack", SMALL)
    found = contents(target / "pack")
    assert len(found) > 20
    return found


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of one sample each, of a format that reads them as parts."""
    folder = tmp_path_factory.mktemp("arrays")
    for number in range(FILES):
        np.save(folder / f"{number:02}.npy", np.full((1, 100), number, np.float32))
    return f"{folder}/{{00..{FILES - 1}}}.npy"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def left(folder: Path) -> list[str]:
    """A result, and what a run left beside it."""
    return sorted(path.name for path in folder.iterdir() if path.name != "cache")


def test_the_command_packs_as_one_machine_does(
    on_ray: OnRay, source: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    sizes = ["--block-size", "1000", "--shard-size", "2000"]
    done = on_ray.run("pack", source, tmp_path / "pack", "--on", "ray", *sizes, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["shards_continued"] == 0
    assert contents(tmp_path / "pack") == expected
    assert left(tmp_path) == ["pack"]


def test_a_pack_over_homes_is_that_of_one_machine(
    on_ray: OnRay, source: Path, tmp_path: Path
) -> None:
    sizes = ["--block-size", "1000", "--shard-size", "2000", "--shards-over", "3"]
    done = on_ray.run("pack", source, tmp_path / "ray", "--on", "ray", *sizes)
    assert done.returncode == 0, done.stderr
    run("pack", source, tmp_path / "one", *sizes)
    found = []
    for name in ("ray", "one"):
        folders = [tmp_path / name / f"home-{home}" for home in range(3)]
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [
            *(folder.name for folder in folders),
            "pack.hri",
        ]
        index = (tmp_path / name / "pack.hri").read_bytes()
        found.append([index, *(contents(folder) for folder in folders)])
    assert found[0] == found[1]
    assert left(tmp_path) == ["one", "ray"]


def test_the_command_indexes_as_one_machine_does(
    on_ray: OnRay, arrays: str, source: Path, tmp_path: Path
) -> None:
    run("index", arrays, "-o", tmp_path / "one.hri")
    output = str(tmp_path / "ray.hri")
    out, told = on_ray.ask("command", "index", arrays, "-o", output, "--on", "ray")
    assert f"indexed {FILES} samples" in out
    assert told == ""
    assert (tmp_path / "ray.hri").read_bytes() == (tmp_path / "one.hri").read_bytes()
    _, told = on_ray.ask("command", "index", str(source), "-o", output, "--on", "ray")
    assert "was indexed by this process alone" in told


def test_each_format_with_parts_is_indexed_as_by_one_process(on_ray: OnRay, tmp_path: Path) -> None:
    assert on_ray.ask("index_formats", str(tmp_path)) == []


def test_a_pack_of_a_pack_is_read_where_it_lies(
    on_ray: OnRay, source_pack: Path, tmp_path: Path
) -> None:
    """Its files lie beside its index, which is not copied."""
    on_ray.ask("pack", str(source_pack), str(tmp_path / "ray"))
    write_pack(hr.open(source_pack), tmp_path / "one", SMALL)
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")


def test_a_pack_that_was_stopped_goes_on(
    on_ray: OnRay, source: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    target = tmp_path / "pack"
    assert on_ray.ask("pack", str(source), str(target), stop_at=0.5) == []
    assert left(tmp_path) == [".pack.partial"]
    shards, continued = on_ray.ask("pack", str(source), str(target))
    assert shards // 3 <= continued < shards
    assert contents(target) == expected
    assert left(tmp_path) == ["pack"]


def test_an_index_that_was_stopped_goes_on(on_ray: OnRay, arrays: str, tmp_path: Path) -> None:
    run("index", arrays, "-o", tmp_path / "one.hri")
    target = str(tmp_path / "ray.hri")
    assert on_ray.ask("index", arrays, target, FILES, stop_at=0.5) == 0
    assert Path(f"{target}.unfinished").exists()
    assert 0 < on_ray.ask("index", arrays, target, FILES) <= FILES // 2
    assert Path(target).read_bytes() == (tmp_path / "one.hri").read_bytes()
    assert not Path(f"{target}.unfinished").exists()


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_raylet_that_is_killed_changes_no_result(
    on_ray: OnRay, source: Path, arrays: str, tmp_path: Path, expected: dict[str, bytes], seed: int
) -> None:
    chance = random.Random(seed)
    victim = chance.choice(on_ray.ask("others"))
    at = chance.uniform(0.1, 0.9)
    if seed % 2 == 0:
        shards, _ = on_ray.ask("pack", str(source), str(tmp_path / "pack"), kill_at=at, node=victim)
        assert shards == len(expected) - 1
        assert contents(tmp_path / "pack") == expected
        assert left(tmp_path) == ["pack"]
    else:
        run("index", arrays, "-o", tmp_path / "one.hri")
        output = str(tmp_path / "ray.hri")
        assert on_ray.ask("index", arrays, output, FILES, kill_at=at, node=victim) == FILES
        assert Path(output).read_bytes() == (tmp_path / "one.hri").read_bytes()
    on_ray.ask("replace", victim)


def test_an_error_of_a_task_is_that_of_one_process(
    on_ray: OnRay, numbered_copy: Path, tmp_path: Path
) -> None:
    hr.open(numbered_copy, index=tmp_path / "source.hri")
    (numbered_copy / "class1" / "050.jpg").write_bytes(b"other")
    kind, text, *notes = on_ray.ask("failing", str(tmp_path / "source.hri"), str(tmp_path / "pack"))
    assert kind == "FailedPreconditionError"
    assert "050.jpg" in text
    assert any(note.startswith("on the Ray node ") for note in notes)


def task_source(data: Path, folder: Path, **changed: str) -> Any:
    from headrace.ray import _packing

    index = hr.open(data, index=folder / "source.hri").index
    made = {"index": index.path, "fingerprint": index.fingerprint, "pyarrow": pa.__version__}
    return _packing._Source(path=str(data), row=None, **(made | changed))


def packed_by_task(source: Any, target: Path, version: str = hr.__version__) -> str:
    """What a task says that cannot work, and where."""
    from headrace.ray import _packing

    with pytest.raises(hr.errors.FailedPreconditionError) as raised:
        _packing._pack_shard(version, source, _packing._Part(str(target), 0, None, [], False))
    assert raised.value.__notes__ == [f"on the Ray node {socket.gethostname()}"]
    return str(raised.value)


def test_a_task_refuses_a_node_that_is_not_as_the_driver(numbered: Path, tmp_path: Path) -> None:
    target, same = tmp_path / "pack", task_source(numbered, tmp_path)
    assert packed_by_task(same, target, "0.0.1").endswith(
        f"this node has headrace {hr.__version__}, the driver 0.0.1: install the same version on "
        "all nodes"
    )
    assert f"{tmp_path}/.pack.partial/data is not there: the target and the data must lie on" in (
        packed_by_task(same, target)
    )
    (tmp_path / ".pack.partial" / "data").mkdir(parents=True)
    other = task_source(numbered, tmp_path, pyarrow="1.2.3")
    assert f"has pyarrow {pa.__version__}, the driver 1.2.3" in packed_by_task(other, target)
    other = task_source(numbered, tmp_path, fingerprint="0123")
    assert "0123 at the driver: all nodes must see the same files" in packed_by_task(other, target)


class Loaders:
    """A worker a node, whose loader is in the node process of an actor."""

    def __init__(self, on_ray: OnRay, source: Path, addresses: list[str]) -> None:
        self.on_ray = on_ray
        self._source = str(source)
        self._addresses = addresses
        self.count = on_ray.ask("start_nodes")
        on_ray.ask("start_workers")

    def open(self, state: Any = None) -> None:
        self.on_ray.ask("open_", self._source, self._addresses, state)

    def each(self, method: str, *arguments: Any) -> list[Any]:
        found = self.on_ray.ask("each", method, *arguments)
        assert isinstance(found, list)
        return found

    def steps(self, count: int) -> list[list[int]]:
        """Global batches, from payloads."""
        return [flat(batches) for batches in zip(*self.each("steps", count), strict=True)]


def addresses(count: int) -> list[str]:
    """Free ones of this machine."""
    return [f"127.0.0.1:{port}" for port in free_ports(["127.0.0.1"] * count)]


@pytest.fixture
def loaders(on_ray: OnRay, source: Path) -> Iterator[Loaders]:
    made = Loaders(on_ray, source, addresses(3))
    yield made
    on_ray.ask("kill_workers")
    on_ray.ask("stop_nodes")


def global_batches(source: Path, epochs: int) -> list[list[set[int]]]:
    """Of one process, by epoch; the last one of an epoch is not full."""
    with hr.Loader(
        source, 12, order="exact", output=hr.Output("numpy", fields=["label"], ids=True)
    ) as one:
        return [[{int(i) for i in batch.sample_id} for batch in one] for _ in range(epochs)]


def check_epoch(got: list[list[int]], wanted: list[set[int]]) -> None:
    """Each sample once, and in the batch that one process has it in; the last is filled up."""
    times = Counter(flat(got[:-1]))
    assert times.most_common(1)[0][1] == 1
    assert set(flat(got)) == set(range(COUNT))
    assert [set(batch) for batch in got[:-1]] == wanted[:-1]
    assert wanted[-1] <= set(got[-1])


def test_loaders_on_all_nodes_read_each_sample_once(loaders: Loaders, source: Path) -> None:
    assert loaders.count == 3
    processes = loaders.on_ray.ask("processes")
    assert len({*processes}) == 3
    loaders.open()
    for wanted in global_batches(source, 2):
        check_epoch(loaders.steps(1000), wanted)
    assert (
        sum(loaders.each("reads")) <= COUNT + 12
    )  # In both epochs: nodes give them to each other.
    loaders.each("close")
    loaders.on_ray.ask("stop_nodes")
    for pid in processes:
        wait_for_end(pid)
    loaders.on_ray.ask("start_nodes")  # For the fixture, which stops them.


def test_what_a_cluster_cannot_have_is_refused(on_ray: OnRay) -> None:
    def refused(function: str, /, **arguments: Any) -> str:
        return str(on_ray.ask("refused", function, **arguments))

    assert refused("start_nodes", count=9, timeout=1) == (
        "ResourceExhaustedError: headrace.ray.start_nodes(): Ray found no place within 1 s: 9 "
        "nodes with {'CPU': 1} free on each are needed, the cluster has 3 nodes; give a smaller "
        "count, resources= that are free, or a longer timeout"
    )
    assert refused("start_nodes", count=1, memory="900TiB").startswith(
        "InvalidArgumentError: start_nodes memory: got '900TiB', but "
    )
    assert refused("node_process", name="other").startswith(
        "NotFoundError: headrace.ray.node_process(): there are no node processes named 'other'"
    )


def parent(pid: int) -> int:
    (line,) = (
        each
        for each in Path(f"/proc/{pid}/status").read_text().splitlines()
        if each.startswith("PPid:")
    )
    return int(line.split()[1])


@pytest.mark.parametrize("victim", ["process", "actor", "raylet"])
def test_a_node_that_is_killed_comes_back_and_training_goes_on(
    loaders: Loaders, source: Path, victim: str
) -> None:
    loaders.open()
    before = loaders.steps(STEPS)
    state = loaders.each("state")[0]
    processes = loaders.on_ray.ask("processes")
    lost = loaders.on_ray.ask("others")[0]
    number = loaders.on_ray.ask("places").index(lost)
    if victim == "raylet":
        loaders.on_ray.ask("kill", lost)
    else:
        pid = processes[number]
        os.kill(parent(pid) if victim == "actor" else pid, signal.SIGKILL)
    wait_for_end(processes[number])
    loaders.on_ray.ask("kill_workers")
    if victim == "raylet":
        loaders.on_ray.ask("replace", lost)
    # The actor may see it a moment later, when the last of its threads has ended.
    until = time.monotonic() + PATIENCE_S
    while (after := loaders.on_ray.ask("processes"))[number] == processes[number]:
        assert time.monotonic() < until, "the actor still has the process that has ended"
        select.select([], [], [], 0.01)
    assert all(map(is_running, after))
    loaders.on_ray.ask("start_workers")
    loaders.open(state)
    check_epoch([*before, *loaders.steps(1000)], global_batches(source, 1)[0])


def test_the_script_of_the_page_runs(on_ray: OnRay, source: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(# (\w+\.py).*?)```", PAGE.read_text(), re.DOTALL)
    (script,) = (text for text, name in blocks if name == "train_ray.py")
    script = script.replace('"images"', repr(str(source)))  # Workers have a folder of their own.
    done = subprocess.run(
        [sys.executable, "-c", script], env=on_ray.environment, cwd=tmp_path, capture_output=True,
        text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [33, 33, 33]  # 97, and two to fill it up


@pytest.mark.parametrize("process", ["own", "of start_nodes"])
def test_workers_of_ray_train_meet_through_its_store(
    on_ray: OnRay, tmp_path: Path, source: Path, process: str
) -> None:
    if process != "own":
        on_ray.ask("start_nodes")
    try:
        on_ray.ask("train", str(source), str(tmp_path), process)
    finally:
        if process != "own":
            on_ray.ask("stop_nodes")
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    with hr.Loader(source, 8, output=hr.Output("numpy", fields=["label"], ids=True)) as one:
        wanted = [[set(batch.sample_id.tolist()) for batch in one] for _ in range(2)]
    for epoch, batches in enumerate(wanted):
        of_ranks = zip(*(rank["epochs"][epoch] for rank in ranks), strict=True)
        check_epoch([flat(shares) for shares in of_ranks], batches)
    assert [(rank["nodes"]["node"], rank["nodes"]["nodes"]) for rank in ranks] == [(0, 2), (1, 2)]
    assert sum(rank["nodes"]["received"] for rank in ranks) > 0
    assert sum(rank["reads"] for rank in ranks) <= COUNT + 8  # In both epochs.


def test_without_ray_commands_say_how_to_get_it(
    numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # As if it were not installed.
    done = run("pack", numbered, tmp_path / "pack", "--on", "ray", code=3)
    assert "headrace: packing on Ray needs ray: pip install ray" in done.stderr
    done = run("index", numbered, "--on", "ray", code=3)
    assert "headrace: headrace index --on ray needs ray: pip install ray" in done.stderr
    with pytest.raises(ImportError, match="pip install ray"):
        hr_ray().start_nodes()
    done = run("index", numbered, "--on", "dask", code=2)
    assert "--on: got 'dask', must be one of 'ray'" in done.stderr


def hr_ray() -> Any:
    import headrace.ray

    return headrace.ray


def test_without_a_cluster_the_commands_say_how_to_start_one(
    numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("none found")

    stand_in = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = run("pack", numbered, tmp_path / "pack", "--on", "ray", code=3)
    assert "no Ray cluster can be reached on this machine: start one with" in done.stderr
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(hr.errors.UnavailableError, match=r"at RAY_ADDRESS=10\.0\.0\.1:6379"):
        hr_ray().start_nodes()
