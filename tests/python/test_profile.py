"""Machine profiles: their file, and what is predicted from them."""

from __future__ import annotations

import copy
import datetime
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import made_profile, rates, sized_rates

import headrace as hr
from headrace import _core, errors
from headrace.profile import (
    DecodeRates,
    EpochWork,
    Host,
    Link,
    MachineProfile,
    TierWork,
    predict_epoch,
)
from headrace.profile._toml import to_toml

MB = 1e6


def machine() -> MachineProfile:
    """Single samples of 100 kB at 100 MB/s, blocks of 1 MB at 400; two threads decode 200."""
    made = made_profile(
        Path("/nvme/cache"),
        storage={
            100_000: ((1, 50 * MB), (64, 100 * MB)),
            1_000_000: ((1, 300 * MB), (16, 400 * MB)),
            4_000_000: ((1, 400 * MB), (16, 500 * MB)),
        },
        ram=((1, 5000 * MB), (2, 8000 * MB)),
        disk={65536: ((1, 1000 * MB), (4, 2000 * MB))},
    )
    (tier,) = made.tiers
    return replace(
        made,
        date=datetime.datetime(2026, 11, 21, 17, 30, tzinfo=datetime.UTC),
        host=Host(cpus=2, memory_bytes=8 * 2**30, kernel="Linux 6.1"),
        dataset=replace(
            made.dataset,
            path='/data/ä "odd" \\ name\x7f\n',
            fingerprint="0" * 32,
            samples=10_000,
            sample_bytes=100_000.5,
        ),
        storage=replace(made.storage, store="io_uring", cold_share=1.0),
        decode=DecodeRates(
            what="copy", sample_bytes=100_000.0, rates=rates(((1, 110 * MB), (2, 200 * MB)))
        ),
        tiers=(replace(tier, direct=False, write=sized_rates({65536: ((1, 500 * MB),)})),),
        peer_bytes_per_second=50 * MB,
    )


def linked() -> MachineProfile:
    """The same with links that were measured."""
    return replace(
        machine(),
        link=Link(
            nodes=3,
            latency_seconds=0.0002,
            cpu_seconds_per_gb=0.5,
            rates=sized_rates(
                {
                    4096: ((1, 10 * MB), (16, 80 * MB)),
                    100_000: ((1, 100 * MB), (16, 400 * MB)),
                }
            ),
        ),
    )


def test_a_profile_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    for wanted in (
        machine(),
        linked(),
        replace(
            machine(),
            tiers=(),
            peer_bytes_per_second=None,
            storage=replace(machine().storage, cold_share=None),
            dataset=replace(machine().dataset, block_bytes=1e6),
        ),
    ):
        wanted.save(path)
        assert hr.profile.load(path) == wanted
    assert [entry.name for entry in tmp_path.iterdir()] == ["machine.toml"]
    text = path.read_text()
    assert text.startswith("# A machine profile of headrace")
    assert "\n# Cold random reads" in text
    assert tomllib.loads(text)["storage"]["rate"][1]["in_flight"] == [1, 16]


def test_nothing_but_a_profile_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[tool]\nkey = 1\n")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"other\.toml: the file exists and is no"
    ):
        machine().save(other)
    assert other.read_text() == "[tool]\nkey = 1\n"
    with pytest.raises(errors.NotFoundError, match="no such folder"):
        machine().save(tmp_path / "none" / "machine.toml")


def test_a_file_that_is_no_profile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    with pytest.raises(
        errors.NotFoundError, match=r"machine\.toml: no such file; `headrace profile`"
    ):
        hr.profile.load(path)
    path.write_text("schema = ")
    with pytest.raises(errors.InvalidArgumentError, match=r"machine\.toml: not TOML: "):
        hr.profile.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.InvalidArgumentError, match="byte 0: no UTF-8; save the file as"):
        hr.profile.load(path)
    path.write_text("schema = 2\n[storage]\n")
    with pytest.raises(
        errors.InvalidArgumentError, match=r":1: schema: got 2, .*; `headrace profile`"
    ):
        hr.profile.load(path)


def places(values: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key of a document, as the way to it; of lists the last entry."""
    if isinstance(values, dict):
        return [
            place
            for key, value in values.items()
            for place in [(*path, key), *places(value, (*path, key))]
        ]
    if isinstance(values, list):
        last = len(values) - 1
        return [(*path, last), *places(values[last], (*path, last))]
    return []


def changed(path: tuple[str | int, ...], change: Callable[[Any, Any], None]) -> str:
    plain = copy.deepcopy(machine().to_plain())
    inside: Any = plain
    for key in path[:-1]:
        inside = inside[key]
    change(inside, path[-1])
    return to_toml(plain)


def dotted(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.lstrip(".")


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.profile.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    return re.sub(rf"^{re.escape(str(path))}(:\d+)?: ", "", message)


KEYS = [place for place in places(machine().to_plain()) if not isinstance(place[-1], int)]
OPTIONAL = {"storage.cold_share", "peers", "tier"}


@pytest.mark.parametrize("path", KEYS, ids=dotted)
def test_every_key_is_checked(path: tuple[str | int, ...], tmp_path: Path) -> None:
    name = dotted(path)
    value = "x" if name == "tier" else []  # no tiers are right
    wrong = refused(tmp_path, changed(path, lambda table, key: table.update({key: value})))
    assert wrong.startswith(f"{name}: got {value!r}, must be ")
    if name not in OPTIONAL:
        missing = refused(tmp_path, changed(path, lambda table, key: table.pop(key)))
        assert missing.startswith(f"{name}: is missing, must be ")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("host", "cpus"), 0, "host.cpus: got 0, must be a whole number of at least 1"),
        (("host", "cpus"), True, "host.cpus: got True"),
        (("host", "kernel"), "", "host.kernel: got ''"),
        (("storage", "direct"), 1, "storage.direct: got 1, must be true or false"),
        (("storage", "reads"), "rows", "storage.reads: got 'rows', must be one of 'ranges', 'file"),
        (("storage", "cold_share"), -0.5, "storage.cold_share: got -0.5"),
        (("storage", "rate", 1, "read_bytes"), 100_000, "storage.rate[1].read_bytes: got 100000"),
        (("storage", "rate", 1, "in_flight"), [16, 1], "storage.rate[1].in_flight[1]: got 1"),
        (
            ("storage", "rate", 2, "bytes_per_second"),
            [1.0, -5],
            "storage.rate[2].bytes_per_second[1]: got -5, must be a number above 0",
        ),
        (
            ("copy", "bytes_per_second"),
            [1.0],
            "copy.bytes_per_second: got [1.0], must be a list of 2",
        ),
        (("copy", "bytes_per_second"), [1.0, math.inf], "copy.bytes_per_second[1]: got inf"),
        (
            ("copy", "spread"),
            [0.0, -0.1],
            "copy.spread[1]: got -0.1, must be a number of at least 0",
        ),
        (("copy", "threads"), [1, 2.5], "copy.threads[1]: got 2.5"),
        (("decode", "sample_bytes"), 0, "decode.sample_bytes: got 0, must be a number above 0"),
        (("dataset", "samples"), 1.5, "dataset.samples: got 1.5"),
        (("date",), "today", "date: got 'today', must be a date with a time"),
        (("tier", 0, "write"), [], "tier[0].write: got []"),
        (("peers", "bytes_per_second"), "fast", "peers.bytes_per_second: got 'fast'"),
        (("host", "color"), 1, "host.color: no such key; there are cpus, memory_bytes, kernel"),
        (("extra",), 1, "extra: no such key; there are schema, "),
        (("tier", 0, "read", 0, "depth"), 1, "tier[0].read[0].depth: no such key"),
    ],
)
def test_a_wrong_value_is_named(
    path: tuple[str | int, ...], value: Any, message: str, tmp_path: Path
) -> None:
    text = changed(path, lambda table, key: table.update({key: value}))
    assert refused(tmp_path, text).startswith(message)


def test_the_examples_of_the_page_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "model.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "machine.toml").write_text(example)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"hr": hr}
    exec(code, names)
    found = names["found"]
    needs = {name: f"{seconds:.2f}" for name, seconds in found.needs.items()}
    told = f'{found.seconds:.2f}, "{found.bound}", {needs}'.replace("'", '"')
    numbers = re.sub(r': "([0-9.]+)"', r": \1", told)
    assert f"# {numbers}\n" in code


def test_no_spread_is_a_spread(tmp_path: Path) -> None:
    flat = replace(machine().copy, spread=(0.0, 0.0))
    replace(machine(), copy=flat).save(tmp_path / "machine.toml")
    assert hr.profile.load(tmp_path / "machine.toml").copy == flat


def test_an_epoch_takes_what_its_busiest_resource_needs() -> None:
    work = EpochWork(
        samples=1000,
        decode_bytes=100 * MB,
        storage_reads=[(1_000_000, 40)],
        tiers=[TierWork(reads=[(65536, 1000)], writes=[(65536, 100)])],
        peer_bytes=20 * MB,
        demand=500,
        reads_in_flight=16,
    )
    found = predict_epoch(machine(), work)
    assert found.needs == pytest.approx(
        {
            "storage": 0.1,
            "tier 0": 65.536 / 2000 + 6.5536 / 500,
            "peers": 0.4,
            "decode": 0.5,
            "consumer": 2.0,
        }
    )
    assert (found.seconds, found.bound, found.samples_per_second) == (2.0, "consumer", 500)
    fast = predict_epoch(machine(), replace(work, demand=None, threads=1))
    given = predict_epoch(linked(), EpochWork(samples=1, peer_reads=[(4096, 100), (200_000, 10)]))
    assert given.needs == pytest.approx({"peers": 0.4096 / 80 + 2 / 400})
    large = predict_epoch(linked(), EpochWork(samples=1, peer_bytes=4 * MB))
    assert large.needs == pytest.approx({"peers": 4 / 400})
    assert (fast.bound, fast.seconds) == ("decode", pytest.approx(100 / 110))
    shared = predict_epoch(machine(), replace(work, demand=None, storage_sharers=8))
    assert (shared.bound, shared.seconds) == ("storage", pytest.approx(0.8))
    assert predict_epoch(machine(), EpochWork(samples=5)).samples_per_second == math.inf


def test_work_that_cannot_be_is_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="samples: got -1"):
        predict_epoch(machine(), EpochWork(samples=-1))
    with pytest.raises(errors.InvalidArgumentError, match="at most the model's 1"):
        predict_epoch(machine(), EpochWork(samples=1, tiers=[TierWork(), TierWork()]))
    alone = replace(machine(), peer_bytes_per_second=None)
    with pytest.raises(errors.InvalidArgumentError, match="the model has no link"):
        predict_epoch(alone, EpochWork(samples=1, peer_bytes=1))


def test_the_core_s_model_is_plain_values_in_and_out() -> None:
    values = machine().to_model().values
    assert values["storage"][0] == (100_000, [(1.0, 50 * MB), (64.0, 100 * MB)])
    assert values["readers"] == 16
    assert values["storage_shared"] is False, "a disk of this machine"
    assert values["link"] == ([(1, [(1.0, 50 * MB)])], 1.0)
    shared = replace(machine(), storage=replace(machine().storage, cold_share=0.0))
    assert shared.to_model().values["storage_shared"] is True
    measured = linked().to_model().values
    assert measured["link"] == (
        [(4096, [(1.0, 10 * MB), (16.0, 80 * MB)]), (100_000, [(1.0, 100 * MB), (16.0, 400 * MB)])],
        16.0,
    )
    assert _core.MachineModel(**measured).values == measured
    assert values["tiers"][0][2] == 4
    assert _core.MachineModel(**values).values == values
    with pytest.raises(errors.InvalidArgumentError, match="rate curve point 1 users: got 1"):
        _core.MachineModel(decode=[(1, 5), (1, 6)])
    with pytest.raises(errors.InvalidArgumentError, match="readers: got 0"):
        _core.MachineModel(readers=0)
    with pytest.raises(TypeError, match="unexpected keyword argument; there are storage, "):
        _core.MachineModel(storages=[])
    with pytest.raises(errors.InvalidArgumentError, match="must be above 0"):
        machine().to_model().storage_rate(0, 1)


def test_sources_are_ranked_and_streams_predicted() -> None:
    model = machine().to_model()
    ranked = model.rank_sources(1_000_000, [("storage", 0), ("peer", 0), ("tier", 0), ("peer", 3)])
    assert [(kind, tier) for kind, tier, _ in ranked] == [
        ("tier", 0),
        ("peer", 0),
        ("storage", 0),
        ("peer", 3),
    ]
    assert ranked[0][2] == pytest.approx(4 * 1e6 / 2e9)
    both = [("storage", 0), ("peer", 0)]
    small = linked().to_model()
    assert small.rank_sources(4096, both)[0][0] == "peer"
    assert small.rank_sources(4096, both)[0][2] == pytest.approx(16 * 4096 / (80 * MB))
    network = replace(linked(), storage=replace(machine().storage, cold_share=None)).to_model()
    alone, crowded = (network.rank_sources(100_000, [("storage", 0)], n)[0][2] for n in (1, 8))
    assert crowded > 4 * alone, "shared by eight nodes"
    with pytest.raises(errors.InvalidArgumentError, match="nodes: got 0"):
        small.rank_sources(1, both, 0)
    with pytest.raises(errors.InvalidArgumentError, match="source: got 'disk'"):
        model.rank_sources(1, [("disk", 0)])
    sizes = np.array([1e6, 1e6])
    which = np.array([0, 1], np.uint32)
    sources = [("storage", 0), ("tier", 0)]
    found = model.predict_stream(sizes, which, sources, 1e8)
    assert found["seconds"] == pytest.approx(16 / 400 + 0.02)
    assert found["fetch_seconds"] == pytest.approx({"tier": 0.002, "peer": 0, "storage": 0.04})
    with pytest.raises(errors.OutOfRangeError, match="sample 1 is from source 1 of 1"):
        model.predict_stream(sizes, which, sources[:1], 1e8)
    with pytest.raises(errors.InvalidArgumentError, match="compute_rate must be above 0"):
        model.predict_stream(sizes, which, sources, 0)
