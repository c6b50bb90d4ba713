"""Tiers in front of an object store: what they hold is not asked for again."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from open_checks import put, requests
from served_objects.object_server import ObjectServer
from small_datasets import BATCH, ROWS, Written

import headrace as hr
from headrace import errors

Order = Literal["exact", "epoch"]
DATA = (".png", ".arrow", ".tar", ".mds")
FORMATS = ("folder", "pack", "tars", "arrow", "mds")  # objects, blocks, ranges


def ids(
    ds: hr.Dataset, order: Order, tiers: Any, epochs: int = 1, seed: int = 3
) -> list[list[int]]:
    """The samples of each epoch, in order. Little is read ahead: a block of the next epoch that is
    asked for while it is on its way into the tier is asked for twice. Columns of a part of a table
    come in several reads, so that a tier takes no sample of it."""
    output, engine = hr.Output("numpy", ids=True), hr.EngineOptions(prefetch=1)
    small = order == "epoch" and ds.format != "huggingface"
    chosen = hr.orders.Epoch(block_samples=2) if small else order
    options: dict[str, Any] = {"order": chosen, "epochs": epochs, "seed": seed, "engine": engine}
    options["output"] = output
    with hr.Loader(ds, BATCH, tiers=tiers, **options) as loader:
        return [
            [int(i) for batch in loader for i in np.asarray(batch.sample_id)] for _ in range(epochs)
        ]


def gets(server: ObjectServer) -> int:
    return requests(server)["get"]


def tier(kind: str, at: Path) -> hr.tiers.Tier:
    at.mkdir(exist_ok=True)
    return hr.tiers.Ram("16MiB") if kind == "ram" else hr.tiers.Ssd(at / "tier", "16MiB")


@pytest.mark.parametrize("kind", ["ram", "ssd"])
@pytest.mark.parametrize("order", ["exact", "epoch"])
@pytest.mark.parametrize("name", sorted({*FORMATS} - {"arrow"}))
def test_the_second_epoch_makes_no_request(
    tmp_path: Path, server: ObjectServer, name: str, order: Order, kind: str
) -> None:
    url = put(server, Written(name, tmp_path))
    ds = hr.open(url)
    requests(server)
    one = ids(ds, order, tier(kind, tmp_path / "one"))
    first = gets(server)
    assert first > 0
    three = ids(ds, order, tier(kind, tmp_path / "three"), epochs=3)
    assert gets(server) == first
    assert three[0] == one[0]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in three)


@pytest.mark.parametrize("order", ["exact", "epoch"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_second_job_with_the_kept_folder_makes_none_in_its_first_epoch(
    tmp_path: Path, server: ObjectServer, name: str, order: Order
) -> None:
    url = put(server, Written(name, tmp_path))
    first = ids(hr.open(url), order, tier("ssd", tmp_path))
    requests(server)
    assert ids(hr.open(url), order, tier("ssd", tmp_path)) == first
    assert [log["key"] for log in server.log("GET") if log["key"].endswith(DATA)] == []


def test_a_tier_without_its_index_is_used_if_the_objects_are_as_they_were(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(server, Written("folder", tmp_path))
    ids(hr.open(url), "exact", tier("ssd", tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    ds = hr.open(url)
    requests(server)
    ids(ds, "exact", tier("ssd", tmp_path))
    assert gets(server) == 0


@pytest.mark.parametrize("kept", ["index and tier", "tier"])
@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_an_object_that_changed_between_two_jobs_is_read_anew(
    tmp_path: Path,
    server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    order: Order,
    kept: str,
) -> None:
    data = Written("folder", tmp_path)
    url = put(server, data)
    ids(hr.open(url), order, tier("ssd", tmp_path))
    new = (data.root / "class0/03.png").read_bytes()
    server.put("a b/class0/00.png", new)
    if kept == "tier":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    ds = hr.open(url)
    with hr.Loader(ds, BATCH, order=order, tiers=tier("ssd", tmp_path)) as loader:
        seen = {bytes(each) for batch in loader for each in batch.image}
    assert new in seen
    assert (data.root / "class0/00.png").read_bytes() not in seen


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_with_an_index_file_a_changed_object_is_an_error_that_names_it(
    tmp_path: Path, server: ObjectServer, order: Order
) -> None:
    data = Written("tars", tmp_path)
    url = put(server, data)
    index = tmp_path / "kept.hri"
    ds = hr.open(url, index=index)
    ids(ds, order, tier("ssd", tmp_path))
    ids(hr.open(index), order, tier("ssd", tmp_path))
    server.put("a b/part-1.tar", server.get("a b/part-0.tar"))
    with pytest.raises(errors.FailedPreconditionError, match=r"part-1\.tar.* changed since"):
        ids(hr.open(index), order, tier("ssd", tmp_path))
    requests(server)
    server.put("a b/part-1.tar", (data.root / "part-1.tar").read_bytes())
    ids(hr.open(index), order, tier("ssd", tmp_path))
    assert requests(server)["list"] == 1


@pytest.mark.parametrize("change", ["new", "removed"])
def test_new_and_removed_keys_are_noticed(
    tmp_path: Path, server: ObjectServer, change: str
) -> None:
    url = put(server, Written("tars", tmp_path)) + "/*.tar"
    ids(hr.open(url), "exact", tier("ssd", tmp_path))
    if change == "new":
        server.put("a b/part-3.tar", server.get("a b/part-0.tar"))
    else:
        url_of_key = f"{server.url}/data/a%20b/part-2.tar"
        urllib.request.urlopen(urllib.request.Request(url_of_key, method="DELETE")).close()
    requests(server)
    ds = hr.open(url)
    assert requests(server)["list"] == 2  # One to compare, one to index anew.
    assert len(ds) == (ROWS + 8 if change == "new" else ROWS - 8)
    assert sorted(ids(ds, "exact", tier("ssd", tmp_path))[0]) == list(range(len(ds)))
