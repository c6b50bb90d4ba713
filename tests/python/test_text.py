"""Names of files that are not UTF-8, and text that is no text: in every direction."""

from __future__ import annotations

import io
import json
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import FLAT, payload_ids, write_numbered

import headrace as hr
from headrace import _core, errors
from headrace._text import one_line, printable
from headrace.cli.main import app
from headrace.orders import added_parameters
from headrace.pack import write_pack

LONE = "\ud800x"  # A surrogate that os.fsdecode() never gives.
BROKEN = 5  # The sample that cannot be decoded.


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """write_numbered(), where the names of the root, of a folder and of a file are not UTF-8; that
    file is no image."""
    root = write_numbered(tmp_path / os.fsdecode(b"data\xe9"), (10, 7))
    os.rename(root / "class1", bytes(root) + b"/class1\xfc")
    image = bytes(root) + b"/class0/005.jpg"
    os.rename(image, image[:-4] + b"\xff.jpg")
    Path(os.fsdecode(image[:-4] + b"\xff.jpg")).write_bytes(b"no image")
    return root


def make(path: Path, **options: Any) -> hr.Loader:
    usual = {"batch_size": 4, "transform": FLAT, "shuffle": False, "on_error": "substitute"}
    return hr.Loader(path, **usual | options)


def encodable(value: Any) -> str:
    """As a log in UTF-8 would have it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text.encode()
    return text


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_what_is_told_of_files_whose_names_are_not_utf_8_can_be_printed(
    odd: Path, tmp_path: Path, isolation: Any
) -> None:
    tiers = [hr.tiers.Ssd(bytes(tmp_path) + b"/tier\xe8", "1MB")]
    node = hr.Node() if isolation == "process" else None
    with make(odd, job=hr.Job(node=node), tiers=tiers) as loader:
        ids = [i for batch in loader for i in np.asarray(batch.image)[:, 0, 0, 0].tolist()]
        assert [i for i in range(17) if ids[i] != i] == [
            BROKEN
        ]  # Each image is grey as its number.
        stats = loader.stats()
        (substitution,) = stats["substitutions"]
        assert substitution["wanted"] == BROKEN
        assert r"sample 5 (class0/005\xff.jpg)" in substitution["reason"]
        assert r"tier\xe8" in encodable([tier["name"] for tier in stats["tiers"]]).replace(
            "\\\\", "\\"
        )
        encodable(stats)
        encodable(loader.state_dict())
        assert r"data\\xe9" in encodable(loader.prometheus())
        explained = loader.explain(1, 1)
        assert r"data\xe9/class0/005\xff.jpg [0, 8)" in encodable(str(explained))
        # A name is what opens the file.
        (row,) = [r for r in explained.rows if (r["sample"], r["field"]) == (BROKEN, "image")]
        assert Path(row["object"]).read_bytes() == b"no image"
        assert os.fsencode(row["object"]) == bytes(odd) + b"/class0/005\xff.jpg"


def test_errors_can_be_printed_and_name_the_file(odd: Path) -> None:
    with make(odd, on_error="raise") as loader, pytest.raises(errors.DataLossError) as raised:
        list(loader)
    assert r"(class0/005\xff.jpg)" in encodable(str(raised.value))
    with pytest.raises(errors.NotFoundError) as raised_here:
        hr.open(odd / "no")
    assert r"data\xe9/no" in encodable(str(raised_here.value))
    with pytest.raises(errors.InvalidArgumentError) as raised_at_once:
        make(odd, tiers=[hr.tiers.Ssd(odd / "tier", "1MB")])
    assert r"data\xe9/tier" in encodable(str(raised_at_once.value))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_of_a_transform_names_the_file_and_its_path_opens_it(
    odd: Path, workers: int
) -> None:
    with (
        make(odd, transform=_refuse, workers=hr.Workers(workers, start="fork")) as loader,
        pytest.raises(errors.TransformError) as raised,
    ):
        list(loader)
    path = raised.value.path
    assert path is not None
    assert path.startswith(str(odd))
    assert Path(path).read_bytes()
    assert r"data\xe9/class0/000.jpg" in encodable(str(raised.value))
    assert r"not \ud800x" in str(raised.value)


def _refuse(sample: hr.Sample) -> object:
    raise ValueError(f"not {LONE}")


def test_the_command_line_prints_names_that_are_not_utf_8(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    def printed(*arguments: str) -> str:
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            app(list(arguments))
        assert ended.value.code == 0
        sys.stdout.flush()
        return out.getvalue().decode()

    assert r"data\xe9" in printed("inspect", str(odd))
    assert r"class1\xfc" in printed("inspect", str(odd))
    assert json.loads(printed("inspect", str(odd), "--json"))["path"] == str(odd)  # docs: PEP 383
    assert r"new\xe9.hri" in printed(
        "index", str(odd), "-o", str(odd.parent / os.fsdecode(b"new\xe9.hri"))
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b\u00e9\u4e2d\u00a0\U0001f600", "a b\u00e9\u4e2d\u00a0\U0001f600"),
        ("a\nb\x1b[31m\x7f", r"a\x0ab\x1b[31m\x7f"),
        ("\x85\x9b31m", r"\u0085\u009b31m"),  # C1: the next line, and the begin of a command
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u202egpj.exe", r"\u202egpj.exe"),  # turns the direction
        ("\ue000\U000e0001", r"\ue000\U000e0001"),
        (LONE + os.fsdecode(b"\xe9"), LONE + os.fsdecode(b"\xe9")),  # printable()'s
    ],
)
def test_one_line_escapes_what_cannot_be_seen(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_an_error_of_a_command_is_one_line_whatever_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["inspect", str(tmp_path / "a\nb\x9b31m\u2028")])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert r"a\x0ab\u009b31m\u2028" in said
    assert len(said.splitlines()) == 1


def test_a_monitored_loader_answers_with_names_that_are_not_utf_8(odd: Path) -> None:
    from headrace._observe.monitor import Address

    with make(odd, engine=hr.EngineOptions(monitor=True)) as loader:
        list(loader)
        monitor = loader._monitor
        assert monitor is not None
        said = Address(os.getpid(), monitor.ordinal).ask("report")
    assert said is not None
    assert said["dataset"] == str(odd)
    assert said["stats"]["substitutions"][0]["reason"].endswith("6e 6f 20 69 6d 61 67 65")


def test_a_pack_of_such_a_folder_gives_the_same_images(odd: Path, tmp_path: Path) -> None:
    write_pack(hr.open(odd), tmp_path / os.fsdecode(b"pack\xe9"))
    with make(tmp_path / os.fsdecode(b"pack\xe9")) as loader:
        order = [number for batch in loader for number in np.asarray(batch.image)[:, 0, 0, 0]]
        assert sorted(set(range(17)) - {int(i) for i in order}) == [BROKEN]


def test_what_cannot_be_printed_is_escaped() -> None:
    assert printable("plain é") == "plain é"
    assert printable(os.fsdecode(b"a\xff\xe9b") + "é" + LONE) == r"a\xff\xe9bé\ud800x"


WRONG: dict[str, Callable[[Path], object]] = {
    "dataset": lambda _: hr.open(LONE),
    "dataset's end": lambda root: hr.open(f"{root}/{LONE}"),
    "dataset with NUL": lambda root: hr.open(f"{root}\0"),
    "index": lambda root: hr.open(root, index=f"{LONE}.hri"),
    "pack": lambda root: write_pack(hr.open(root), f"{root}{LONE}"),
    "fields": lambda root: make(root, output=hr.Output(fields=[LONE])),
    "transform": lambda root: make(root, transform={LONE: FLAT}),
    "order": lambda root: make(root, order=LONE),
    "mapping": lambda root: make(root, order=hr.orders.Redox(mapping=LONE)),
    "pool": lambda root: make(root, order=hr.orders.Epoch(pool=LONE)),
    "costs": lambda root: make(root, order=hr.orders.Batch(costs=LONE)),
    "memory": lambda root: make(root, memory=LONE),
    "io": lambda root: make(root, engine=hr.EngineOptions(io=LONE)),
    "on_error": lambda root: make(root, on_error=LONE),
    "output": lambda root: make(root, output=LONE),
    "placement": lambda root: make(root, tiers=hr.Cache(placement=LONE)),
    "schedule": lambda root: make(root, engine=hr.EngineOptions(schedule=LONE)),
    "schedule with NUL": lambda root: make(root, engine=hr.EngineOptions(schedule="lobster\0")),
    "profile": lambda root: make(root, engine=hr.EngineOptions(profile=LONE)),
    "start": lambda root: make(root, workers=hr.Workers(start=LONE)),
    "node": lambda root: make(root, job=hr.Job(node=hr.Node(name=LONE))),
    "tier": lambda root: make(root, tiers=[hr.tiers.Ssd(f"{root}{LONE}", "1MB")]),
    "budget": lambda _: hr.tiers.Budget("1GiB").part(LONE, 0.5),
    "trace": lambda root: make(root).trace(LONE),
    "report": lambda root: make(root).report(f"{LONE}.png"),
    "the core's order": lambda _: _core.OrderSpec(LONE, {}),
    "the core's parameter": lambda _: _core.OrderSpec("redox", {LONE: 1}),
    "the core's value": lambda _: _core.OrderSpec("redox", {"mapping": LONE}),
    "the core's path": lambda _: _core.Index.open(LONE),
    "the core's field": lambda _: _core.LoaderOptions(fields=[{"name": LONE}]),
    "the core's attribute": lambda _: _core.IndexContents(1, "/").set_attribute(LONE, ""),
    "the core's type": lambda _: _core.IndexContents(1, "/").add_inline_field(
        "a", (LONE, "int64", ()), np.zeros(1)
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_text_that_no_name_can_be_is_one_error(numbered: Path, wrong: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"\\ud800|\\x00"):
        WRONG[wrong](numbered)


def test_paths_may_be_bytes(numbered: Path) -> None:
    assert len(hr.open(bytes(numbered))) == 97  # type: ignore[arg-type]


# States that were changed.

NASTY: list[Any] = [
    *(LONE, "", "\0", "max_fill", os.fsdecode(b"\xff"), "x" * 5000, b"bytes"),
    *(None, True, False, -1, 0, 1, 3, 2**31, 2**63 - 1, 2**63, 2**64, -(2**70), 10**5000),
    *(0.5, 1.0, float("nan"), float("inf"), [], [1], {}, {"a": 1}, {LONE: LONE}, object()),
    *(np.int64(3), np.zeros(3), np.array([True]), "exact", "epoch", 1 + 2j, range(3)),
]


def mutated(state: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A copy with one or two changes: a value, a key that is gone, a key that is new."""
    copy = state | {"order_parameters": dict(state["order_parameters"])}
    for _ in range(draw.choice((1, 1, 2))):
        inside = copy["order_parameters"] if draw.random() < 0.4 else copy
        if not isinstance(inside, dict):
            continue
        keys = [*inside, "new", LONE, 7]
        key = draw.choice(keys)
        if draw.random() < 0.2:
            inside.pop(key, None)
        else:
            inside[key] = draw.choice(NASTY)
    return copy


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox", "sampler"])
def test_a_state_that_was_changed_is_refused_or_goes_on_as_it_says(
    numbered: Path, order: str
) -> None:
    draw = random.Random(f"states of {order}")
    given: dict[str, Any] = {"order": order} if order != "sampler" else {"sampler": range(90)}
    with hr.Loader(numbered, 6, transform=FLAT, memory="64MiB", **given) as loader:
        for _, _ in zip(range(3), loader, strict=False):
            pass
        state = loader.state_dict()
        loader.load_state_dict(state)
        rest = [payload_ids(batch) for batch in loader]
        refused = []
        for _ in range(120):
            changed = mutated(state, draw)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # of small pools
                    loader.load_state_dict(changed)
            except errors.HeadraceError as error:
                refused.append(encodable(str(error)))
            else:
                added = added_parameters(state["order"]).keys()  # Older states do not have them.
                assert set(state["order_parameters"]) - set(changed["order_parameters"]) <= added
                for key in ("version", "order", "seed", "global_batch"):
                    assert changed[key] == state[key]
                # The dataset is known by one of them.
                same = [changed.get(key) == state[key] for key in ("fingerprint", "content")]
                assert any(same)
        assert len(refused) > 60
        assert max(map(len, refused)) < 2000
        # Whatever was refused, the loader goes on.
        loader.load_state_dict(state)
        assert [payload_ids(batch) for batch in loader] == rest


@pytest.mark.parametrize("order", ["batch", "epoch", "redox"])
def test_a_state_without_its_orders_parameters_is_refused(numbered: Path, order: Any) -> None:
    with hr.Loader(numbered, 6, order=order) as loader:
        state = loader.state_dict()
        for key in [None, *state["order_parameters"].keys() - added_parameters(order).keys()]:
            part = {k: v for k, v in state["order_parameters"].items() if key not in (None, k)}
            with pytest.raises(errors.InvalidArgumentError, match=r"order_parameters.*is missing"):
                loader.load_state_dict(state | {"order_parameters": part})
        more = state["order_parameters"] | {"more": 1}
        with pytest.raises(errors.InvalidArgumentError, match="'more' is none of them"):
            loader.load_state_dict(state | {"order_parameters": more})
