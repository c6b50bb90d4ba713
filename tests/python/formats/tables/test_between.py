"""What meets between tables and other features."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import errors
from headrace.formats import Manifest, Parquet, Records, WebDataset
from headrace.formats._base.absent import NOT_GIVEN


def test_a_split_of_a_folder_and_one_of_its_tables(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.csv").write_text("x,split\n1,a\n2,b\n3,a\n")
    dataset = hr.open(tmp_path, split="train", format=Manifest(split="a"))
    assert [int(each["x"]) for each in dataset] == [1, 3]


def test_a_split_of_the_one_table_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("x,split\n1,a\n2,b\n3,a\n")
    dataset = hr.open(tmp_path, format=Manifest(split="a"))
    assert [int(each["x"]) for each in dataset] == [1, 3]


def test_a_former_pickle(tmp_path: Path) -> None:
    """Its function was in `headrace._dataset` itself, without what came later."""
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    dataset = hr.open(tmp_path / "a.csv")
    data = pickle.dumps(dataset, protocol=0)
    assert data.count(b"headrace._dataset.dataset\n_reopen") == 1
    before = data.replace(b"headrace._dataset.dataset\n_reopen", b"headrace._dataset\n_reopen")
    assert [int(each["x"]) for each in pickle.loads(before)] == [1, 2]


def test_a_kept_index_of_permuted_tensors_gives_what_it_gave(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])
    stored = pa.array([[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]], pa.list_(pa.float32(), 6))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": pa.ExtensionArray.from_storage(kind, stored)}), path)
    row = Parquet(decode=True)
    whole = np.arange(12, dtype=np.float32).reshape(2, 2, 3).transpose(0, 2, 1)
    dataset = hr.open(path, format=row)
    assert np.array_equal(np.stack([each["t"] for each in dataset]), whole)
    size = stored.type.list_size * 2 * 4

    def given(about: list[object]) -> bytes:
        into = bytearray(size)
        part = quote(json.dumps(about, separators=(",", ":")), safe="")
        assert row.decode_group(str(path), part, memoryview(into)) == size
        return bytes(into)

    assert given([0, ["t"], {}, True]) == np.ascontiguousarray(whole).tobytes()
    assert given([0, ["t"]]) == np.arange(12, dtype=np.float32).tobytes()


def test_what_has_none_of_the_members_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("0.png", "0.cls", "1.cls", "2.png", "2.cls"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    dataset = hr.open(path, format=WebDataset(members=("png",), raw=("png",)))
    assert [bytes(each["png"]) for each in dataset] == [b"0.png", b"2.png"]
    (finding,) = dataset.report
    assert (finding.kind, finding.count, finding.examples) == ("tar_other", 1, ("1",))


@pytest.mark.parametrize("number", [2**53 + 1, 10**400])
def test_a_number_that_no_cell_can_hold_is_refused(tmp_path: Path, number: int) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1.5,x\n,y\n")
    with pytest.raises(errors.InvalidArgumentError, match="column 'a'"):
        hr.open(tmp_path / "a.csv", format=Manifest(fill={"a": number}))


@pytest.mark.parametrize("offset", [4.0, -1, "4"])
def test_an_offset_is_a_number_of_bytes(tmp_path: Path, offset: object) -> None:
    (tmp_path / "a.raw").write_bytes(bytes(20))
    with pytest.raises(errors.InvalidArgumentError, match="records offset: got"):
        hr.open(tmp_path / "a.raw", format=Records(dtype="uint8", offset=offset))  # type: ignore[arg-type]


def test_blanks_before_quotes_are_taken_off(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a, "b"\nx, "y, z"\nu,"v"\n')
    dataset = hr.open(tmp_path / "a.csv", format=Manifest(strip=True, text=("a", "b")))
    assert [(each["a"], each["b"]) for each in dataset] == [("x", "y, z"), ("u", "v")]


def test_nothing_stands_in_in_other_processes_too() -> None:
    assert pickle.loads(pickle.dumps(NOT_GIVEN)) is NOT_GIVEN
