"""Data with a column `sample_id`, the name that a batch has for the samples' numbers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import headrace as hr
from headrace import errors
from headrace.papers.redox import RedoxFetcher

VALUES = [7, 5, 3, 1, 2, 4]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def npz(folder: Path) -> Path:
    np.savez(folder / "a.npz", sample_id=np.array(VALUES), x=np.zeros((6, 40)))
    return folder / "a.npz"


def table(suffix: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        rows = pa.table({"sample_id": VALUES, "x": list(range(6))})
        path = folder / f"a{suffix}"
        if suffix == ".parquet":
            pyarrow.parquet.write_table(rows, path)
        elif suffix == ".arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
        elif suffix == ".csv":
            path.write_text("sample_id,x\n" + "".join(f"{v},{i}\n" for i, v in enumerate(VALUES)))
        else:
            lines = (f'{{"sample_id": {v}, "x": {i}}}\n' for i, v in enumerate(VALUES))
            path.write_text("".join(lines))
        return path

    return write


def tar(folder: Path) -> Path:
    with tarfile.open(folder / "a.tar", "w") as file:
        for i, value in enumerate(VALUES):
            for name in ("sample_id", "x"):
                member = tarfile.TarInfo(f"{i}.{name}")
                member.size = 1
                file.addfile(member, io.BytesIO(b"%d" % value))
    return folder / "a.tar"


FORMATS = {
    "npz": npz,
    "tar": tar,
    **{each: table(each) for each in (".csv", ".jsonl", ".parquet", ".arrow")},
}


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_refused_by_name_in_every_format(tmp_path: Path, name: str) -> None:
    path = FORMATS[name](tmp_path)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"Output\(ids=True\): .* field 'sample_id'"
    ) as e:
        hr.Loader(path, 2, output=hr.Output(ids=True))
    assert str(path) in str(e.value)
    assert "Output(fields=('x',), ids=True), or leave ids out" in str(e.value)
    with hr.Loader(path, 6, output=hr.Output(ids=True, fields=("x",))) as loader:
        (batch,) = loader
        assert sorted(batch.sample_id.tolist()) == list(range(6))
    with hr.Loader(path, 6, shuffle=False) as loader:
        (batch,) = loader
        assert set(batch._fields) == {"sample_id", "x"}
        assert [int(bytes(v.tolist()) if name == "tar" else v) for v in batch.sample_id] == VALUES


def as_dict(sample: hr.Sample) -> dict[str, Any]:
    return {"sample_id": sample["sample_id"], "number": sample.id}


def renamed(sample: hr.Sample) -> dict[str, Any]:
    return {"own": sample["sample_id"]}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_transform_of_python(tmp_path: Path, workers: int) -> None:
    path = npz(tmp_path)
    with (
        hr.Loader(
            path, 2, output=hr.Output(ids=True), transform=as_dict, workers=workers
        ) as loader,
        pytest.raises(errors.InvalidArgumentError, match="the transform's dict has 'sample_id'"),
    ):
        next(iter(loader))
    with hr.Loader(path, 6, transform=as_dict, workers=workers) as loader:
        (batch,) = loader
        assert [VALUES[i] for i in batch["number"].tolist()] == batch["sample_id"].tolist()
    with hr.Loader(
        path, 6, output=hr.Output(ids=True), transform=renamed, workers=workers
    ) as loader:
        (batch,) = loader
        assert [VALUES[i] for i in batch["sample_id"].tolist()] == batch["own"].tolist()


def test_through_torchs_dataloader(tmp_path: Path) -> None:
    path = npz(tmp_path)
    for with_ids in (False, True):
        fields = ("x",) if with_ids else None
        with hr.Loader(
            path, 2, output=hr.Output(ids=with_ids, fields=fields), shuffle=False
        ) as loader:
            samples = RedoxFetcher(loader)
            batches = list(torch.utils.data.DataLoader(samples, batch_sampler=samples.sampler))
            found = [int(n) for batch in batches for n in batch.sample_id]
            assert found == (list(range(6)) if with_ids else VALUES)


def test_a_field_alone_has_no_other_to_take(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"sample_id": 1}\n')
    with pytest.raises(errors.InvalidArgumentError, match="in a batch; leave ids out"):
        hr.Loader(path, 1, output=hr.Output(ids=True))
