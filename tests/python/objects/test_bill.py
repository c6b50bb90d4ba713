"""`headrace plan` with prices: its requests and bytes are those that the server sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run, run_json
from open_checks import put
from served_objects.object_server import ObjectServer
from small_datasets import BATCH, Written

import headrace as hr

PRICES = ("--price-per-million-reads", 400_000, "--price-per-gb", 1e9)


def run_job(ds: hr.Dataset, epochs: int, order: Any, tiers: Any) -> None:
    chosen = hr.orders.Epoch(block_samples=2) if order == "epoch" else order
    options: dict[str, Any] = {"order": chosen, "epochs": epochs, "seed": 3}
    options |= {"output": hr.Output("numpy"), "engine": hr.EngineOptions(prefetch=1)}
    with hr.Loader(ds, BATCH, tiers=tiers, **options) as loader:
        for _ in range(epochs):
            for _ in loader:
                pass


@pytest.mark.parametrize("tier", [False, True])
@pytest.mark.parametrize("order", ["exact", "epoch"])
@pytest.mark.parametrize("name", ["folder", "pack", "tars", "mds"])
def test_the_bill_is_of_what_the_server_sees(
    tmp_path: Path, server: ObjectServer, name: str, order: str, tier: bool
) -> None:
    url = put(server, Written(name, tmp_path))
    ds = hr.open(url)
    options = ["--order", order, "--batch", BATCH, "--seed", 3, "--epochs", 3, "--job-epochs", 3]
    if order == "epoch":
        options += ["--block-samples", 2]
    if tier:
        options += ["--ram", "16MiB"]
    planned = run_json("plan", url, *options, *PRICES)["bill"]
    server.clear_log()
    run_job(ds, 3, order, hr.tiers.Ram("16MiB") if tier else None)
    asked = [log for log in server.log("GET") if log["key"]]
    job = planned["job"]
    assert job["cost"] == pytest.approx(0.4 * job["requests"] + job["bytes"])
    if tier:
        assert [each["cost"] for each in planned["epochs"][1:]] == [0, 0]
    if tier and order == "exact":  # What is fetched ahead is planned a read a field, and may join.
        assert len(asked) <= job["requests"]
    else:
        assert len(asked) == job["requests"]
        assert sum(log["sent"] for log in asked) == job["bytes"]


def test_a_long_sample_is_several_requests(tmp_path: Path, server: ObjectServer) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((2, 20 << 20), np.uint8))
    server.put("rows.npy", (tmp_path / "rows.npy").read_bytes())
    options = ("--batch", 1, "--epochs", 1, "--job-epochs", 1)
    planned = run_json("plan", "s3://data/rows.npy", *options, *PRICES)
    server.clear_log()
    with hr.Loader("s3://data/rows.npy", 1, epochs=1, output=hr.Output("numpy")) as loader:
        for _ in loader:
            pass
    asked = [log for log in server.log("GET") if log["key"]]
    assert planned["bill"]["job"]["requests"] == planned["epochs"][0]["requests"] == len(asked) == 6


def test_epochs_that_are_not_planned_and_other_ranks_count(tmp_path: Path) -> None:
    data = Written("folder", tmp_path)
    options = ("--epochs", 1, "--job-epochs", 5, "--ranks", 2, "--batch", BATCH)
    bill = run_json("plan", data.path, *options, *PRICES)["bill"]
    assert bill["job"]["requests"] == 5 * bill["epochs"][0]["requests"]
    said = run("plan", data.path, *options, *PRICES).stdout
    assert "bill of epoch 0: " in said
    assert f"bill of the job, 5 epochs: {bill['job']['cost']:,.4g} for " in said
    assert said.count("of all 2 ranks") == 2


def test_prices_are_numbers_from_zero_on(tmp_path: Path) -> None:
    data = Written("folder", tmp_path)
    said = run("plan", data.path, "--price-per-gb", "-1", code=2).stderr
    assert "--price-per-gb: got -1.0, must be at least 0" in said
    assert "bill" not in run_json("plan", data.path)
