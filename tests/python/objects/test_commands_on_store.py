"""Commands on a URL say what a user of a store needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run, run_json
from open_checks import put
from served_objects.object_server import ObjectServer
from small_datasets import ROWS, Written

import headrace as hr
from headrace import errors


def test_verify_says_that_versions_were_compared_and_names_what_changed(
    tmp_path: Path, server: ObjectServer
) -> None:
    url = put(server, Written("tars", tmp_path))
    run("index", url, "-o", tmp_path / "kept.hri")
    assert "sizes and versions of objects were compared" in run("verify", url).stdout
    server.put("a b/part-1.tar", server.get("a b/part-0.tar"))
    said = run("verify", tmp_path / "kept.hri", code=1)
    assert "part-1.tar" in said.stderr
    assert "changed since it was indexed" in said.stderr


def test_verify_reads_what_has_checksums(tmp_path: Path, server: ObjectServer) -> None:
    verified = run_json("verify", put(server, Written("pack", tmp_path)))
    assert verified["ok"]
    assert verified["samples_compared"] >= ROWS


def test_profile_says_what_a_request_takes(tmp_path: Path, server: ObjectServer) -> None:
    url = put(server, Written("pack", tmp_path))
    said = run("profile", url, "--seconds", 0.5).stdout
    assert "storage (object_store), cold" in said
    assert "ms alone; " in said
    assert "a second with " in said
    assert "page cache" not in said


def test_memory_that_requests_do_not_fit_into_is_named(
    tmp_path: Path, server: ObjectServer
) -> None:
    ds = hr.open(put(server, Written("folder", tmp_path)))
    with pytest.raises(errors.InvalidArgumentError, match=r"requests of the object store 4\.0 MiB"):
        hr.Loader(ds, 4, memory="4MiB")
    with hr.Loader(ds, 4, memory="16MiB", epochs=1, output=hr.Output("numpy")) as loader:
        for _ in loader:
            pass
        memory = loader.stats()["memory"]
    assert 4 << 20 <= memory["requests_budget"] <= 16 << 20
    assert 0 < memory["requests_peak"] <= memory["requests_budget"]
