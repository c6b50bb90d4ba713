"""Default parameters of `order="epoch"`: the same however ranks share processes, and useful."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, flat, sample_file
from node_ranks import Ranks
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.pack import PackParameters, write_pack

GLOBAL = 12  # Divided by every world size here.
EPOCHS = 2
Ids = list[list[list[int]]]  # of each epoch, of each batch


def alone(root: Path, rank: int, ranks: int, **arguments: Any) -> Ids:
    """What one rank is given by an engine in its own process."""
    with hr.Loader(
        root,
        GLOBAL // ranks,
        output=hr.Output("numpy", fields=["label"], ids=True),
        job=hr.Job(rank=rank, world_size=ranks),
        **arguments,
    ) as loader:
        return [[batch.sample_id.tolist() for batch in loader] for _ in range(EPOCHS)]


def together(of_ranks: list[Ids]) -> Ids:
    """The global batches: row by row, rank after rank."""
    return [
        [
            [number for row in zip(*step, strict=True) for number in row]
            for step in zip(*epoch, strict=True)
        ]
        for epoch in zip(*of_ranks, strict=True)
    ]


@pytest.fixture
def pack(numbered: Path, tmp_path: Path) -> Path:
    """Blocks of two samples: 49."""
    target = tmp_path / "blocks.pack"
    write_pack(hr.open(numbered), target, PackParameters(block_samples=2, seed=1))
    return target


# The loop holds a batch while it asks for the next, and 48 KiB may not hold two: whether they must
# depends on how fast its last view dies.
@pytest.mark.filterwarnings("ignore:.* of memory for batches are not enough")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_ranks_of_a_node_process_and_ranks_alone_have_one_order(pack: Path, count: int) -> None:
    """With little memory and with much; and if there is enough, the order of one rank."""
    whole = alone(pack, 0, 1, order="epoch", seed=3, drop_last=True)
    for epoch in whole:
        assert len(set(flat(epoch))) == COUNT // GLOBAL * GLOBAL
    with Ranks(count) as ranks:
        for memory in (None, "8MiB", "48KiB"):
            given = {"order": "epoch", "seed": 3, "drop_last": True, "memory": memory}
            node = ranks.ask("labels", str(pack), EPOCHS, batch_size=GLOBAL // count, **given)
            each = [alone(pack, rank, count, **given) for rank in range(count)]
            assert node == each
            if memory != "48KiB":
                assert together(each) == whole


def test_explain_says_where_each_parameter_comes_from(pack: Path) -> None:
    def origins(loader: hr.Loader) -> dict[str, str]:
        return {name: each.origin for name, each in loader.explain(0).parameters.items()}

    options: dict[str, Any] = {
        "batch_size": GLOBAL,
        "output": hr.Output(fields=["label"]),
        "seed": 3,
    }
    order = hr.orders.Epoch(pools=2)
    with hr.Loader(pack, **options, order=order) as loader:
        assert origins(loader) == {
            "bijection_from": "default",
            "block_samples": "default",
            "first_fill_permille": "default",
            "first_join_permille": "default",
            "home_table": "default",
            "homes": "default",
            "join_permille": "default",
            "pool_bytes": "default",
            "pools": "given",
        }
        text = str(loader.explain(0)).splitlines()[1]
        start = "  order epoch: bijection_from 16777216 (default), block_samples 0 (default), "
        assert text.startswith(start)
        assert text.endswith("pools 2 (given)")
    with hr.Loader(pack, **options, order=order, memory="48KiB") as loader:
        assert origins(loader)["pool_bytes"] == "default, limited by memory"
        state = loader.state_dict()
        assert {name: each.value for name, each in loader.explain(0).parameters.items()} == (
            state["order_parameters"]
        )
    with hr.Loader(pack, **options, order=order) as loader:
        loader.load_state_dict(state)
        assert origins(loader)["pool_bytes"] == "from the state"
        assert origins(loader)["pools"] == "given"


def test_the_command_line_has_the_defaults_of_a_loader(pack: Path) -> None:
    arguments = ["order", str(pack), "--order", "epoch", "--hash", "--json"]
    for ranks in (1, 4, 5):
        batch = GLOBAL // ranks * ranks
        job = ["--batch", str(batch), "--ranks", str(ranks)]
        result = CliRunner().invoke(app, [*arguments, *job])
        assert result.exit_code == 0, result.output
        with hr.Loader(
            pack,
            batch // ranks,
            order="epoch",
            output=hr.Output(fields=["label"]),
            job=hr.Job(rank=0, world_size=ranks),
        ) as loader:
            parameters = loader.state_dict()["order_parameters"]
        del parameters["block_samples"]  # Which blocks there are: no parameter of their order.
        assert json.loads(result.stdout)["parameters"] == parameters


@pytest.mark.parametrize("first_fill", [1000, 100])
def test_a_state_without_a_first_join_means_what_it_meant(pack: Path, first_fill: int) -> None:
    """As states were before there was that parameter."""
    options: dict[str, Any] = {
        "batch_size": GLOBAL,
        "output": hr.Output("numpy", fields=["label"], ids=True),
        "seed": 9,
    }
    order = hr.orders.Epoch(pools=2, pool="60%", first_fill=first_fill / 1000)
    with hr.Loader(pack, order=order, **options) as loader:
        state = loader.state_dict()
        whole = [batch.sample_id.tolist() for batch in loader]
    assert state["order_parameters"].pop("first_join_permille") == 0
    assert state["order_parameters"]["first_fill_permille"] == first_fill
    with hr.Loader(pack, order="epoch", **options) as loader:
        loader.load_state_dict(state)
        assert [batch.sample_id.tolist() for batch in loader] == whole
        assert loader.state_dict()["order_parameters"]["first_join_permille"] == 0


def test_a_small_dataset_is_not_resident_as_a_whole(numbered: Path, tmp_path: Path) -> None:
    """1.2 GB in files of 1 MiB, nearly all of it holes, and not read here."""
    image = sample_file(numbered, 0).read_bytes()
    folder = tmp_path / "images" / "class0"
    folder.mkdir(parents=True)
    for number in range(1200):
        with (folder / f"{number}.jpg").open("wb") as file:
            file.write(image)
            file.truncate(2**20)
    total = 1200 * 2**20
    order = hr.orders.Epoch(block_samples=16)
    with hr.Loader(folder.parent, 64, order=order) as loader:
        parameters = loader.state_dict()["order_parameters"]
        budget = loader.stats()["memory"]["resident_budget"]
    assert parameters["pool_bytes"] == pytest.approx(total / 4, rel=0.02)
    assert budget <= 1.05 * parameters["pool_bytes"]
    full = parameters["pool_bytes"] * 0.75
    assert full * parameters["first_fill_permille"] / 1000 == pytest.approx(2**26, rel=0.05)
