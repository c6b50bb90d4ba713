"""Samples that do not decode: found by `headrace verify --decode`, left out by `skip="@FILE"`."""

from __future__ import annotations

import io
import pickle
import re
import shlex
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import run, run_json
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.cli._checks import verify
from headrace.pack import PackParameters, write_pack

SAMPLES = 60
BROKEN = (0, 7, 8, 31, 59)
"""Numbers of samples whose JPEG is cut: the first and the last, and neighbours."""
LEFT = [number for number in range(SAMPLES) if number not in BROKEN]

Bytes = npt.NDArray[np.uint8]


def encoded(number: int, broken: Sequence[int] = BROKEN) -> bytes:
    """A JPEG of one colour, by which a test knows its number."""
    file = io.BytesIO()
    Image.new("RGB", (16 + number % 3, 16), (4 * number, 0, 0)).save(file, "JPEG", quality=95)
    data = file.getvalue()
    return data[: len(data) // 3] if number in broken else data


def write_tar(path: Path, broken: Sequence[int] = BROKEN) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(SAMPLES):
            for suffix, data in (
                ("cls", str(number).encode()),
                ("jpg", encoded(number, broken)),
            ):
                member = tarfile.TarInfo(f"{number:04}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def write_folder(root: Path) -> Path:
    for number in range(SAMPLES):
        file = root / f"class{number // 20}" / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(number))
    return root


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "data.tar")


def pillow_decodes(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except OSError:
        return False
    return True


def found_by_verify(path: Path, listed: Path) -> dict[str, Any]:
    printed = run("verify", path, "--decode", "--failures", listed, code=1)
    assert f"{len(BROKEN)} failed" in printed.output
    assert listed.exists()
    return run_error_json(path)


def run_error_json(path: Path) -> dict[str, Any]:
    import json

    found = json.loads(run("verify", path, "--decode", "--json", code=1).stdout)
    assert isinstance(found, dict)
    return found


def numbers_of(image: Any) -> list[int]:
    """The numbers of images of one colour: [samples, height, width, 3]."""
    reds = np.asarray(image, np.float64)[:, :, :, 0].mean((1, 2))
    return [round(each / 4) for each in reds]


def epoch_of(loader: hr.Loader[Any]) -> list[tuple[int, int]]:
    """Number and id of each sample, in order; the number is what its pixels say."""
    found = []
    for batch in loader:
        named = batch._asdict()
        found += list(
            zip(numbers_of(named["image"]), np.asarray(named["sample_id"]).tolist(), strict=True)
        )
    return found


TRANSFORM = {"image": hr.image.resize(16, dtype="uint8", layout="NHWC")}


def loader_of(dataset: hr.Dataset, **options: Any) -> hr.Loader[Any]:
    return hr.Loader(
        dataset,
        output=hr.Output("numpy", fields=("image",), ids=True),
        transform=TRANSFORM,
        **{"batch_size": 4, **options},
    )


def test_verify_finds_what_pillow_cannot_decode(tar: Path, tmp_path: Path) -> None:
    listed = tmp_path / "broken.txt"
    found = found_by_verify(tar, listed)
    assert [each["sample"] for each in found["decoding"]] == list(BROKEN)
    assert all(each["field"] == "image" for each in found["decoding"])
    assert [number for number in range(SAMPLES) if not pillow_decodes(encoded(number))] == [*BROKEN]
    lines = [line.partition("\t")[0] for line in listed.read_text().splitlines()]
    assert [line for line in lines if not line.startswith("#")] == [*map(str, BROKEN)]


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_order_gives_the_others_under_their_numbers(
    tar: Path, tmp_path: Path, order: Any, drop_last: bool
) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    dataset = hr.open(tar, skip=f"@{listed}")
    assert len(dataset) == SAMPLES
    with loader_of(dataset, order=order, drop_last=drop_last, seed=3) as loader:
        for _ in range(3):
            found = epoch_of(loader)
            assert all(number == sample for number, sample in found)
            seen = sorted(number for number, _ in found)
            if drop_last:
                assert len(seen) == len(set(seen)) == len(LEFT) // 4 * 4
                assert set(seen) <= set(LEFT)
            else:
                assert seen == LEFT


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_ranks_share_what_is_left(tar: Path, tmp_path: Path, order: Any) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    seen: list[int] = []
    for rank in range(2):
        with loader_of(
            hr.open(tar, skip=f"@{listed}"), order=order, job=hr.Job(rank=rank, world_size=2)
        ) as loader:
            mine = epoch_of(loader)
            assert all(number == sample for number, sample in mine)
            seen += [number for number, _ in mine]
    assert set(seen) == set(LEFT)
    assert len(seen) == len(LEFT) + len(LEFT) % 2  # Padded from the epoch's beginning.


def test_a_state_continues_with_the_same_list_only(tar: Path, tmp_path: Path) -> None:
    listed, other = tmp_path / "broken.txt", tmp_path / "other.txt"
    found_by_verify(tar, listed)
    other.write_text("5\n6\n")
    for order in ("exact", "epoch"):
        with loader_of(hr.open(tar, skip=f"@{listed}"), order=order, seed=1) as loader:
            whole = epoch_of(loader)
        with loader_of(hr.open(tar, skip=f"@{listed}"), order=order, seed=1) as loader:
            batches = iter(loader)
            for _ in range(5):
                next(batches)
            state = loader.state_dict()
        with loader_of(hr.open(tar, skip=f"@{listed}"), order=order, seed=1) as loader:
            loader.load_state_dict(state)
            assert epoch_of(loader) == whole[20:]
        for skip in (None, f"@{other}"):
            with (
                loader_of(hr.open(tar, skip=skip), order=order, seed=1) as loader,
                pytest.raises(errors.FailedPreconditionError, match="samples left out"),
            ):
                loader.load_state_dict(state)
    with loader_of(hr.open(tar), seed=1) as loader:
        state = loader.state_dict()
        assert "left_out" not in state
    with (
        loader_of(hr.open(tar, skip=f"@{listed}"), seed=1) as loader,
        pytest.raises(
            errors.FailedPreconditionError,
            match="without samples left out, restored with samples left out",
        ),
    ):
        loader.load_state_dict(state)


def test_no_sample_that_is_left_out_stands_in(tmp_path: Path) -> None:
    """Two samples of three are good but left out: one that fails is replaced by the third."""
    tar = write_tar(tmp_path / "data.tar", broken=(4,))
    kept = (4, 10, 11)
    listed = tmp_path / "listed.txt"
    listed.write_text("".join(f"{each}\n" for each in range(SAMPLES) if each not in kept))
    with loader_of(hr.open(tar, skip=f"@{listed}"), on_error="substitute", batch_size=3) as loader:
        for _ in range(20):
            found = epoch_of(loader)
            assert len(found) == 3
            assert {number for number, _ in found} <= {10, 11}


def test_a_folder_leaves_files_out_by_name(tmp_path: Path) -> None:
    root, listed = write_folder(tmp_path / "images"), tmp_path / "broken.txt"
    run("verify", root, "--decode", "--failures", listed, code=1)
    names = [line.partition("\t")[0] for line in listed.read_text().splitlines()]
    assert [name for name in names if not name.startswith("#")] == [
        f"/class{number // 20}/{number:04}.jpg" for number in BROKEN
    ]
    dataset = hr.open(root, skip=f"@{listed}")
    assert len(dataset) == len(LEFT)
    pixels = np.stack([dataset.decoded(each)["image"].mean((0, 1)) for each in range(len(dataset))])
    assert [round(each / 4) for each in pixels[:, 0]] == LEFT
    assert run("verify", root, "--decode", "--skip", f"@{listed}").exit_code == 0
    assert run_json("index", root, "--skip", f"@{listed}")["samples"] == len(LEFT)


def test_a_pack_of_what_is_left(tar: Path, tmp_path: Path) -> None:
    listed, target = tmp_path / "broken.txt", tmp_path / "pack"
    found_by_verify(tar, listed)
    run("pack", tar, target, "--skip", f"@{listed}", "--block-samples", "8")
    pack = hr.open(target)
    assert len(pack) == len(LEFT)
    assert verify.verify(pack).ok
    labels = sorted(int(pack[each]["label"]) for each in range(len(pack)))
    assert labels == LEFT
    for number in range(len(pack)):
        sample = pack[number]
        assert bytes(sample["image"]) == encoded(int(sample["label"]))
    source = write_pack(
        hr.open(tar, skip=f"@{listed}"),
        tmp_path / "in-order",
        PackParameters(order="source", block_samples=4),
    )
    in_order = hr.open(source.path)
    assert [int(in_order[each]["label"]) for each in range(len(in_order))] == LEFT


def test_what_is_left_out_is_not_read(tar: Path, tmp_path: Path) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    dataset = hr.open(tar, skip=f"@{listed}")
    assert [int(sample["label"]) for sample in dataset] == LEFT
    with pytest.raises(errors.FailedPreconditionError, match=r"sample 7 .*is left out"):
        dataset[7]
    (finding,) = [each for each in dataset.report if each.kind == "skipped"]
    assert (finding.count, finding.examples) == (5, ("sample 0", "sample 7", "sample 8"))
    copy = pickle.loads(pickle.dumps(dataset))
    assert [int(sample["label"]) for sample in copy] == LEFT
    with loader_of(copy) as loader:
        assert sorted(number for number, _ in epoch_of(loader)) == LEFT


def test_a_sampler_that_draws_one_is_refused(tar: Path, tmp_path: Path) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    dataset = hr.open(tar, skip=f"@{listed}")
    with (
        loader_of(dataset, sampler=range(SAMPLES)) as loader,
        pytest.raises(errors.InvalidArgumentError, match="sample 0 is left out"),
    ):
        list(loader)
    with loader_of(dataset, sampler=LEFT) as loader:
        assert [number for number, _ in epoch_of(loader)] == LEFT


def test_what_is_not_supported_is_refused(tar: Path, tmp_path: Path) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    dataset = hr.open(tar, skip=f"@{listed}")
    with pytest.raises(errors.InvalidArgumentError, match="tiers of a dataset that leaves out 5"):
        loader_of(dataset, tiers=hr.tiers.Ram("64MiB"))
    everything = tmp_path / "all.txt"
    everything.write_text("".join(f"{each}\n" for each in range(SAMPLES)))
    with pytest.raises(errors.InvalidArgumentError, match="none is left"):
        loader_of(hr.open(tar, skip=f"@{everything}"))


def test_a_list_of_other_data_is_refused(tar: Path, tmp_path: Path) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    other = write_tar(tmp_path / "other.tar", broken=())
    with pytest.raises(errors.FailedPreconditionError, match="samples of other data"):
        hr.open(other, skip=f"@{listed}")
    names = tmp_path / "names.txt"
    names.write_text("/ant/broken.jpg\n")
    with pytest.raises(errors.InvalidArgumentError, match="lists names of files"):
        hr.open(tar, skip=f"@{names}")
    root = write_folder(tmp_path / "images")
    with pytest.raises(errors.InvalidArgumentError, match="lists numbers of samples"):
        hr.open(root, skip=f"@{listed}")
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("12\nabc\n")
    with pytest.raises(errors.InvalidArgumentError, match="line 2 is 'abc'"):
        hr.open(tar, skip=f"@{wrong}")
    wrong.write_text(f"{SAMPLES}\n")
    with pytest.raises(errors.InvalidArgumentError, match="lists sample 60"):
        hr.open(tar, skip=f"@{wrong}")
    with pytest.raises(errors.NotFoundError, match="--failures"):
        hr.open(tar, skip="@missing.txt")


def test_good_data_is_good(tmp_path: Path) -> None:
    tar, listed = write_tar(tmp_path / "good.tar", broken=()), tmp_path / "none.txt"
    assert "60 samples read and decoded, 0 failed" in run("verify", tar, "--decode").output
    run("verify", tar, "--decode", "--failures", listed)
    with loader_of(hr.open(tar, skip=f"@{listed}"), shuffle=False) as loader:
        assert [number for number, _ in epoch_of(loader)] == [*range(SAMPLES)]


def look(sample: hr.Sample) -> Any:
    return sample.image[:1, :1]


@pytest.mark.parametrize("python", [None, 0, 1])
def test_an_error_of_decoding_names_what_helps(
    tar: Path, tmp_path: Path, python: int | None
) -> None:
    """The advice is typed as it stands, with a file and a path."""
    way: dict[str, Any] = {"transform": TRANSFORM}
    if python is not None:
        way = {"transform": look, "workers": python}
    with (
        hr.Loader(tar, 4, output=hr.Output("numpy", fields=("image",)), **way) as loader,
        pytest.raises((errors.DataLossError, errors.TransformError)) as caught,
    ):
        list(loader)
    advice = re.search(r"`headrace (verify .*?)` finds all such", str(caught.value))
    assert advice is not None
    assert 'Loader(on_error="substitute") replaces them' in str(caught.value)
    listed = tmp_path / "listed.txt"
    run(*shlex.split(advice[1].replace("FILE", str(listed))), code=1)
    with hr.Loader(
        hr.open(tar, skip=f"@{listed}"), 4, output=hr.Output("numpy", fields=("image",)), **way
    ) as loader:
        assert sum(len(batch if python is not None else batch[0]) for batch in loader) == len(LEFT)


def test_a_list_is_not_written_without_what_it_leaves_out(tar: Path, tmp_path: Path) -> None:
    listed = tmp_path / "broken.txt"
    found_by_verify(tar, listed)
    before = listed.read_text()
    again = ("verify", tar, "--decode", "--skip", f"@{listed}", "--failures", listed)
    assert "which would not be in the new one" in run(*again, code=2).output
    assert listed.read_text() == before
    assert (
        "55 samples read and decoded"
        in run("verify", tar, "--decode", "--skip", f"@{listed}").output
    )
    nowhere = ("verify", tar, "--decode", "--failures", tmp_path / "no" / "list.txt")
    assert "no file can be written in" in run(*nowhere, code=2).output


def test_names_that_cannot_be_listed_are_said(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "images")
    (root / "class0" / "0007.jpg").rename(root / "class0" / "0*7.jpg")
    found = run("verify", root, "--decode", "--failures", tmp_path / "broken.txt", code=1)
    assert "1 file with *, ?, tab or newline in the name cannot be listed" in found.output


def test_the_advice_has_the_options_of_the_format(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "images")
    table = tmp_path / "images" / "table.csv"
    table.write_text("a;n\n" + "".join(f"class0/{n:04}.jpg;{n}\n" for n in range(9)))
    given = hr.formats.Manifest(paths={"image": "a"}, delimiter=";")
    dataset = hr.open(table, format=given)
    with (
        hr.Loader(
            dataset, 3, output=hr.Output(fields=("image",)), transform={"image": hr.image.resize(8)}
        ) as loader,
        pytest.raises(errors.DataLossError) as caught,
    ):
        list(loader)
    advice = re.search(r"`headrace (verify .*?)` finds all such", str(caught.value))
    assert advice is not None
    listed = tmp_path / "listed.txt"
    run(*shlex.split(advice[1].replace("FILE", str(listed))), code=1)
    left = hr.open(table, format=given, skip=f"@{listed}")
    assert [int(sample["n"]) for sample in left] == [1, 2, 3, 4, 5, 6]
    assert root.is_dir()
