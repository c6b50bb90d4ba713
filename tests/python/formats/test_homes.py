"""Datasets over homes: the same samples as without, and a node reads what lies at its own."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import run, run_json
from format_checks import check_orders
from own_readers import own_samples

import headrace as hr
from headrace import _core, errors
from headrace.cli._checks import verify as _verify
from headrace.pack import PackParameters, PackResult, write_pack
from headrace.pack import _plan as plan

HOMES = 3


def over(homes: int, **others: object) -> PackParameters:
    sizes = {"block_bytes": 15_000, "shard_bytes": 40_000}
    return PackParameters(shards_over=homes, **(sizes | others))  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def samples_of(dataset: hr.Dataset) -> list[tuple[bytes, int]]:
    return [(sample["image"], int(sample["label"])) for sample in dataset]


@pytest.fixture
def packed(original: Path, tmp_path: Path) -> Path:
    """A pack over three homes."""
    write_pack(hr.open(original), tmp_path / "pack", over(HOMES))
    return tmp_path / "pack"


def node(packed: Path, at: Path, homes: Sequence[int]) -> hr.Dataset:
    """The dataset on a node whose own disk has these homes."""
    at.mkdir()
    shutil.copy(packed / "pack.hri", at)
    for home in homes:
        shutil.copytree(packed / f"home-{home}", at / f"home-{home}")
    return hr.open(at)


@pytest.mark.parametrize("order", ["source", "shuffled"])
@pytest.mark.parametrize("homes", [1, 2, 3, 7])
def test_samples_and_their_numbers_are_those_of_a_pack_without_homes(
    original: Path, tmp_path: Path, homes: int, order: str
) -> None:
    source = hr.open(original)
    write_pack(source, tmp_path / "one", over(1, order=order))
    result = write_pack(source, tmp_path / "pack", over(homes, order=order))
    assert result.homes == homes
    one, pack = hr.open(tmp_path / "one"), hr.open(tmp_path / "pack")
    assert samples_of(pack) == samples_of(one)
    if order == "source":
        assert samples_of(pack) == samples_of(source)
    else:
        assert sorted(samples_of(pack)) == sorted(samples_of(source))
    assert pack.homes == homes
    counts = [blocks.index.blocks()[:2] for blocks in (one, pack)]
    np.testing.assert_array_equal(counts[0], counts[1])
    assert _verify.verify(pack).ok
    own = list(own_samples(pack.format_row, str(tmp_path / "pack")))
    assert [(sample["image"], sample["label"]) for sample in own] == samples_of(one)
    if homes == 1:
        assert contents(tmp_path / "pack") == contents(tmp_path / "one")
        assert "shards_over" not in pack.index.attributes["pack"]


def test_each_home_has_whole_blocks_and_its_share_of_the_bytes(packed: Path) -> None:
    dataset = hr.open(packed)
    names = sorted(path.name for path in packed.iterdir())
    assert names == ["home-0", "home-1", "home-2", "pack.hri"]
    table = dataset.home_table
    sizes = dataset.index.extents(0)[2]
    homes = table.of_samples()
    assert homes.tolist() == [dataset.home_of(number) for number in range(60)]
    held = [int(sizes[homes == home].sum()) for home in range(HOMES)]
    assert max(held) - min(held) <= 15_000  # a block
    first, counts, objects, _, _, _ = dataset.index.blocks()
    for start, count, number in zip(first.tolist(), counts.tolist(), objects.tolist(), strict=True):
        assert set(homes[start : start + count].tolist()) == {table.of_object(number)}
        name = dataset.index.object(number)[0]
        assert name.startswith(f"home-{table.of_object(number)}/shard-")
    for home in range(HOMES):
        rows: list[bytes] = []
        for path in sorted((packed / f"home-{home}").iterdir()):
            rows += pa.ipc.open_file(path).read_all()["image"].to_pylist()
        expected = [dataset[number]["image"] for number in np.flatnonzero(homes == home).tolist()]
        assert rows == expected


def test_bytes_do_not_depend_on_workers(original: Path, tmp_path: Path) -> None:
    source = hr.open(original)
    for workers in (1, 4):
        write_pack(source, tmp_path / str(workers), over(HOMES), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "4")


def test_blocks_without_bytes_are_dealt_by_number() -> None:
    dealt = plan._dealt(np.array([0, 0, 9, 0, 1, 0, 0], np.uint64), 3)
    assert [each.tolist() for each in dealt] == [[0, 3, 5, 6], [1, 4], [2]]
    held = plan._dealt(np.zeros(7, np.uint64), 3)
    assert [each.tolist() for each in held] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"shards_over": 0}, "pack shards_over: got 0"),
        ({"shards_over": 2**16 + 1}, "pack shards_over: got 65,?537"),
        ({"shards_over": 2.5}, r"pack shards_over: got 2\.5"),
    ],
)
def test_wrong_numbers_of_homes_are_refused(parameters: dict[str, int], says: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=says):
        PackParameters(**parameters)  # type: ignore[arg-type]


def test_each_home_needs_a_block(original: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="got 3, but the pack has only 2 blocks"):
        write_pack(hr.open(original), tmp_path / "pack", over(3, block_samples=30))
    assert not list(tmp_path.glob("*pack*"))
    write_pack(hr.open(original), tmp_path / "pack", over(2, block_samples=30))
    assert hr.open(tmp_path / "pack").homes == 2


PACK_AND_DIE = """
import os, signal, sys
import headrace as hr
from headrace.pack import PackParameters, write_pack
left = int(sys.argv[3])
def progress(done, total):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
parameters = PackParameters(block_bytes=15_000, shard_bytes=40_000, shards_over=3)
write_pack(hr.open(sys.argv[1]), sys.argv[2], parameters, workers=2, progress=progress)
"""


@pytest.mark.parametrize("after", [1, 9, 14])
def test_a_stopped_pack_goes_on(packed: Path, original: Path, tmp_path: Path, after: int) -> None:
    target = tmp_path / "stopped"
    command = [sys.executable, "-c", PACK_AND_DIE, original, target, str(after)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not target.exists()
    if after == 14:
        with pytest.raises(errors.InvalidArgumentError, match="shards_over 3 then, 2 now"):
            write_pack(hr.open(original), target, over(2))
        assert write_pack(hr.open(original), target, over(HOMES)).shards_continued > 0
    else:
        write_pack(hr.open(original), target, over(HOMES))
    assert contents(target) == contents(packed)
    assert not list(tmp_path.glob(".*"))


def test_what_an_unfinished_pack_left_is_removed(packed: Path, tmp_path: Path) -> None:
    from headrace.pack._partial import PartialPack

    target = tmp_path / "other"
    with PartialPack(target) as partial:
        partial.begin({}, restart=False)
        shutil.copytree(packed / "home-1", partial.data / "home-1")
        kept, *others = sorted((partial.data / "home-1").iterdir())
        assert others
        partial.tidy({f"home-1/{kept.name}"})
        assert list((partial.data / "home-1").iterdir()) == [kept]


def test_packs_with_and_without_homes_replace_each_other(packed: Path, original: Path) -> None:
    before = contents(packed)
    write_pack(hr.open(original), packed, over(1), overwrite=True)
    assert not list(packed.glob("home-*"))
    write_pack(hr.open(original), packed, over(HOMES), overwrite=True)
    assert contents(packed) == before


def test_a_pack_is_made_of_a_pack_over_homes(packed: Path, tmp_path: Path) -> None:
    write_pack(hr.open(packed), tmp_path / "again", over(2, order="source"))
    again = hr.open(tmp_path / "again")
    assert samples_of(again) == samples_of(hr.open(packed))
    part = node(packed, tmp_path / "node", [0])
    with pytest.raises(errors.NotFoundError, match="home 1 of 3 is not on this node"):
        write_pack(part, tmp_path / "part", over(1, order="source"), workers=1)
    assert not (tmp_path / "part").exists()


def test_files_that_are_decoded_as_a_whole_are_gathered_for_each_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.formats import Builder

    rows = np.arange(3 * 1024 * 512, dtype=np.int64).reshape(3, 1024, 512)
    with Builder(tmp_path / "rows.hri", root=tmp_path, decodes=True) as builder:
        builder.add_field("row", "array", "int64", (512,))
        for number, each in enumerate(rows):
            path = tmp_path / f"{number}.gz"
            path.write_bytes(gzip.compress(each.tobytes(), 1))
            file = builder.add_file(path, coding="gzip", decoded_bytes=each.nbytes)
            builder.add_extents("row", file, np.arange(1024) * 4096, np.full(1024, 4096))
    source = hr.open(tmp_path / "rows.hri")
    assert source.homes == 1
    parameters = PackParameters(shard_bytes=3 << 20, shards_over=2)
    write_pack(source, tmp_path / "direct", parameters)
    monkeypatch.setattr(_core, "decoded_bytes_kept", 1 << 20)
    write_pack(source, tmp_path / "gathered", parameters)
    assert contents(tmp_path / "gathered") == contents(tmp_path / "direct")
    order = _core.permutation(3 * 1024, 0, 0, 4)
    for at, sample in enumerate(hr.open(tmp_path / "gathered")):
        np.testing.assert_array_equal(sample["row"], rows.reshape(-1, 512)[order[at]])


def test_orders_deliver_every_sample_where_all_homes_are(packed: Path, tmp_path: Path) -> None:
    dataset = hr.open(packed)
    check_orders(dataset, [dict(sample) for sample in dataset], tmp_path)


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox"])
def test_ranks_and_resumed_loaders_deliver_what_they_do_without_homes(
    packed: Path, original: Path, tmp_path: Path, order: str
) -> None:
    """The plan is of samples and blocks, which are the same."""
    write_pack(hr.open(original), tmp_path / "one", over(1))
    found = []
    for path in (tmp_path / "one", packed):
        batches = []
        for rank in range(2):
            options: dict[str, Any] = {
                "order": order,
                "job": hr.Job(rank=rank, world_size=2),
                "output": hr.Output(fields=("image", "label"), ids=True),
            }
            with hr.Loader(path, 4, **options) as loader:
                rows = iter(loader)
                batches += [next(rows) for _ in range(3)]
                state = loader.state_dict()
            with hr.Loader(path, 4, **options) as loader:
                loader.load_state_dict(state)
                batches += list(loader)
        found.append([(list(map(bytes, batch[0])), batch[-1].tolist()) for batch in batches])
    assert found[0] == found[1]


def test_a_node_reads_its_own_home_and_says_where_the_others_are(
    packed: Path, tmp_path: Path
) -> None:
    whole = hr.open(packed)
    for home in range(HOMES):
        dataset = node(packed, tmp_path / f"node{home}", [home])
        assert dataset.fingerprint == whole.fingerprint
        assert dataset.homes == HOMES
        for number in range(len(whole)):
            at = dataset.home_of(number)
            if at == home:
                assert dataset[number] == whole[number]
                continue
            with pytest.raises(errors.NotFoundError) as raised:
                dataset.read(number)
            folder = tmp_path / f"node{home}" / f"home-{at}"
            assert (
                f"no such file; home {at} of 3 is not on this node: {folder} is not here;"
                in str(raised.value)
            )


@pytest.mark.parametrize("io", ["auto", "threads"])
def test_a_loader_of_what_is_at_home_touches_nothing_else(
    packed: Path, tmp_path: Path, io: str
) -> None:
    whole = hr.open(packed)
    dataset = node(packed, tmp_path / "node", [1])
    for home in (0, 2):  # What opens or looks into these fails.
        (tmp_path / "node" / f"home-{home}").symlink_to(tmp_path / "node" / f"home-{home}")
    mine = [number for number in range(60) if dataset.home_of(number) == 1]
    engine = hr.EngineOptions(io=io)
    fields = ("image", "label")
    with hr.Loader(
        dataset, 4, sampler=mine, engine=engine, output=hr.Output(ids=True, fields=fields)
    ) as loader:
        rows = [row for batch in loader for row in zip(*batch, strict=True)]
    assert [int(number) for *_, number in rows] == mine
    for image, label, number in rows:
        sample = whole[int(number)]
        assert (bytes(image), int(label)) == (sample["image"], int(sample["label"]))


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_a_loader_of_all_samples_fails_with_the_home_that_is_missing(
    packed: Path, tmp_path: Path, order: str
) -> None:
    dataset = node(packed, tmp_path / "node", [0, 1])
    missing = pytest.raises(errors.NotFoundError, match="home 2 of 3 is not on this node")
    with hr.Loader(dataset, 4, order=order, output=hr.Output(fields=("image",))) as loader, missing:
        list(loader)


def test_a_file_that_is_missing_in_a_home_that_is_here_is_a_missing_file(
    packed: Path, tmp_path: Path
) -> None:
    dataset = node(packed, tmp_path / "node", [0])
    for path in (tmp_path / "node" / "home-0").iterdir():
        path.unlink()
    number = next(n for n in range(60) if dataset.home_of(n) == 0)
    with pytest.raises(errors.NotFoundError, match="no such file; put it back, or copy or create"):
        dataset.read(number)
    (here, fault), *others = dataset.home_table.present()
    assert not here
    assert "home 0 is not whole on this node" in fault
    assert others == [(False, ""), (False, "")]


def test_folders_that_the_index_does_not_name_change_nothing(packed: Path) -> None:
    (packed / "home-3").mkdir()
    (packed / "home-3" / "shard.arrow").write_bytes(b"x")
    dataset = hr.open(packed)
    assert dataset.homes == 3
    assert dataset.home_table.present() == [(True, "")] * 3
    assert _verify.verify(dataset).ok


def test_verify_checks_the_homes_asked_for(packed: Path, tmp_path: Path) -> None:
    dataset = node(packed, tmp_path / "node", [0, 2])
    homes = dataset.home_table.of_samples()
    for given in ([0], [0, 2]):
        options = [word for home in given for word in ("--home", home)]
        found = run_json("verify", tmp_path / "node", *options)
        assert found["ok"]
        assert found["samples"] == found["samples_compared"] == int(np.isin(homes, given).sum())
        files = sum(len(list((packed / f"home-{home}").iterdir())) for home in given)
        assert found["files"] == files
    missing = run("verify", tmp_path / "node", code=1)
    assert missing.stderr.count("home 1 of 3 is not on this node") == len(
        list((packed / "home-1").iterdir())
    )
    damaged = next((tmp_path / "node" / "home-2").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    run("verify", tmp_path / "node", "--home", "0")
    assert damaged.name in run("verify", tmp_path / "node", "--home", "2", code=1).stderr
    wrong = run("verify", tmp_path / "node", "--home", "3", code=2)
    assert "--home: got 3, the dataset has 3 homes, numbered from 0" in wrong.stderr


def test_inspect_says_which_homes_are_here(packed: Path, tmp_path: Path) -> None:
    dataset = node(packed, tmp_path / "node", [1, 2])
    damaged = next((tmp_path / "node" / "home-2").iterdir())
    damaged.write_bytes(b"")
    shown = run_json("inspect", tmp_path / "node")
    assert [each["here"] for each in shown["homes"]] == [False, True, False]
    assert [bool(each["fault"]) for each in shown["homes"]] == [False, False, True]
    homes = dataset.home_table.of_samples()
    assert [each["samples"] for each in shown["homes"]] == np.bincount(homes).tolist()
    assert shown["pack"]["shards_over"] == 3
    # Examples are taken from what is here.
    assert {dataset.home_of(each["sample"]) for each in shown["examples"]} == {1}
    assert not any("error" in each["values"] for each in shown["examples"])
    words = run("inspect", tmp_path / "node").stdout
    assert "not on this node" in words
    fault = f"home 2 is not whole on this node: {damaged}"  # The table folds a long path.
    assert "".join(fault.split()) in "".join(words.split())
    assert run_json("inspect", packed)["homes"][0]["here"]


def test_the_command_packs_over_homes(original: Path, packed: Path, tmp_path: Path) -> None:
    sizes = ("--block-size", "15kB", "--shard-size", "40kB")
    done = run("pack", original, tmp_path / "made", "--shards-over", 3, *sizes)
    assert "over 3 homes" in done.stdout
    assert contents(tmp_path / "made") == contents(packed)
    again = run_json("pack", original, tmp_path / "made", "--shards-over", 2, *sizes, "--overwrite")
    assert again["homes"] == 2
    wrong = run("pack", original, tmp_path / "none", "--shards-over", 0, code=2)
    assert "--shards-over: got 0" in wrong.stderr


def write_tars(root: Path, homes: Sequence[int], samples: int = 5) -> None:
    """A tar at each home."""
    for home in homes:
        (root / f"home-{home}").mkdir(parents=True)
        with tarfile.open(root / f"home-{home}" / "a.tar", "w") as tar:
            for number in range(samples):
                info = tarfile.TarInfo(f"{home}-{number}.txt")
                info.size = len(f"{home} {number}")
                tar.addfile(info, io.BytesIO(f"{home} {number}".encode()))


def test_a_folder_a_node_is_a_dataset_over_homes(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    write_tars(root, [0, 1])
    run("index", str(root / "home-*" / "a.tar"), "-o", tmp_path / "tars.hri")
    dataset = hr.open(tmp_path / "tars.hri")
    assert dataset.homes == 2
    assert [sample["txt"] for sample in dataset] == [
        f"{h} {n}".encode() for h in (0, 1) for n in range(5)
    ]
    assert dataset.home_table.of_samples().tolist() == [0] * 5 + [1] * 5
    # On another node, under the same path.
    shutil.rmtree(root / "home-0")
    dataset = hr.open(tmp_path / "tars.hri")
    assert dataset.home_table.present() == [(False, ""), (True, "")]
    assert dataset[5]["txt"] == b"1 0"
    with pytest.raises(errors.NotFoundError, match="home 0 of 2 is not on this node"):
        dataset.read(0)


def test_a_gap_is_refused_where_homes_are_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    write_tars(root, [0, 2])
    dataset = hr.open(str(root / "home-*" / "a.tar"))
    with pytest.raises(errors.FailedPreconditionError, match="files in home-2, but none in home-1"):
        _ = dataset.homes
    # Who does not ask reads it as any other.
    assert run_json("inspect", root / "home-*" / "a.tar")["homes"] == []
    with hr.Loader(dataset, 4, order="epoch") as loader:
        assert sum(len(batch[0]) for batch in loader) == 10


def test_a_dataset_without_homes_has_one(original: Path) -> None:
    dataset = hr.open(original)
    assert dataset.homes == 1
    assert [dataset.home_of(number) for number in (0, 59)] == [0, 0]
    assert dataset.home_table.present() == [(True, "")]
    assert run_json("inspect", original)["homes"] == []


def test_home_of_refuses_what_is_no_sample(packed: Path) -> None:
    dataset = hr.open(packed)
    with pytest.raises(errors.OutOfRangeError, match=r"home of sample 60 of .*samples 0 to 59"):
        dataset.home_of(60)
    with pytest.raises(errors.InvalidArgumentError, match="must be an integer"):
        dataset.home_of("1")  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(dataset)).homes == 3


def test_a_copied_pack_is_the_same_one(packed: Path, tmp_path: Path) -> None:
    before = hr.open(packed).fingerprint
    for path in packed.rglob("*"):
        os.utime(path, ns=(1, 1))
    packed.rename(tmp_path / "moved")
    moved = hr.open(tmp_path / "moved")
    assert moved.fingerprint == before
    assert moved.home_table.present() == [(True, "")] * 3
    assert _verify.verify(moved).ok


def test_what_a_pack_counts_includes_all_homes(packed: Path, original: Path) -> None:
    result: PackResult = write_pack(hr.open(original), packed, over(HOMES), overwrite=True)
    files = [path.stat().st_size for path in packed.rglob("*") if path.is_file()]
    assert result.file_bytes == sum(files)
    assert result.shards == len(files) - 1
