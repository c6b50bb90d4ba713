"""Mixtures of every format, on disk and in an object store: each sample as its source has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_datasets
from PIL import Image
from served_objects.object_server import ObjectServer
from small_datasets import FORMATS, Written

import headrace as hr
from headrace._places import table


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with ObjectServer() as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        yield started
        table.LISTER.close()


def plain(value: Any) -> Any:
    """Of a field's value what can be compared: bytes come as such, or as an array."""
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def check(sources: dict[str, hr.Dataset]) -> None:
    mixture = hr.mix(sources, {"a": 2, "b": 1}, stop="all")
    samples = [
        {name: plain(value) for name, value in dataset[number].items()}
        for dataset in sources.values()
        for number in range(len(dataset))
    ]
    assert [plain(list(sample.values())) for sample in mixture] == [
        list(sample.values()) for sample in samples
    ]
    fields = mixture.fields
    ragged: Any = "list" if "list" in map(mixture.kind, fields) else None
    output = hr.Output("numpy", ragged=ragged, ids=True)
    with hr.Loader(mixture, 4, order="exact", seed=3, epochs=2, output=output) as loader:
        for epoch in range(2):
            drawn = []
            for batch in loader:
                for row, number in enumerate(batch.sample_id.tolist()):
                    drawn.append(number)
                    found = [plain(values[row]) for values in list(batch)[: len(fields)]]
                    assert found == list(samples[number].values())
            first = len(sources["a"])
            counts = [sum(each < first for each in drawn), sum(each >= first for each in drawn)]
            assert counts == list(mixture.counts().values())
            assert epoch == 1 or set(drawn) == set(range(len(samples)))


def both(name: str, at: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Written, Written]:
    """Two datasets of that format; the second has fewer samples."""
    for each in ("a", "b"):
        (at / each).mkdir()
    a = Written(name, at / "a")
    with monkeypatch.context() as fewer:
        if name != "gzipped":  # Its reader knows the number, too.
            fewer.setattr(small_datasets, "ROWS", 18)
        b = Written(name, at / "b")
    b.later(b.root)
    if name == "tars":
        (b.root / "part-2.tar").unlink()
    return a, b


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_mixes_with_its_like(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = both(name, tmp_path, monkeypatch)
    sources = {"a": hr.open(a.path, format=a.format), "b": hr.open(b.path, format=b.format)}
    check(sources)


@pytest.mark.parametrize("name", ["folder", "npy", "tars", "parquet", "arrow", "mds"])
def test_sources_lie_in_an_object_store(
    name: str, tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {}
    for part, written in zip("ab", both(name, tmp_path, monkeypatch), strict=True):
        for file in written.files(written.root):
            server.put(f"{part}/{file.relative_to(written.root).as_posix()}", file.read_bytes())
        below = str(written.path).removeprefix(str(written.root))
        sources[part] = hr.open(f"s3://data/{part}{below}", format=written.format)
    check(sources)
    (tmp_path / "disk").mkdir()
    disk = Written(name, tmp_path / "disk")
    with pytest.raises(hr.errors.InvalidArgumentError, match="different stores"):
        hr.mix({**sources, "disk": hr.open(disk.path, format=disk.format)}, {"a": 1})


@pytest.mark.parametrize("form", [None, "stored", "decoded"])
def test_images_are_transformed_as_those_of_their_source(tmp_path: Path, form: Any) -> None:
    sources = {}
    for seed, name in enumerate("ab"):
        for number in range(12):
            pixels = np.random.default_rng([seed, number]).integers(0, 256, (9, 11, 3), np.uint8)
            file = tmp_path / name / f"class{number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
        sources[name] = hr.open(tmp_path / name)
    output = hr.Output("numpy", ids=True)
    common: dict[str, Any] = {"transform": hr.image.evaluate(8), "output": output, "epochs": 2}
    wanted: dict[int, bytes] = {}
    for first, dataset in zip((0, 12), sources.values(), strict=True):
        with hr.Loader(dataset, 4, shuffle=False, order="exact", **common) as loader:
            for batch in loader:
                for image, number in zip(batch.image, batch.sample_id.tolist(), strict=True):
                    wanted[first + number] = image.tobytes()
    mixture = hr.mix(sources, {"a": 1, "b": 2}, stop="all", source_field="from")
    more: dict[str, Any] = {"tiers": hr.tiers.Ram("1MiB", form=form)} if form else {}
    with hr.Loader(mixture, 4, order="exact", **common, **more) as loader:
        for _ in range(2):
            seen = set()
            for batch in loader:
                images, labels, origins, numbers = batch
                for image, label, origin, number in zip(
                    images, labels.tolist(), origins.tolist(), numbers.tolist(), strict=True
                ):
                    assert image.tobytes() == wanted[number]
                    assert label == mixture[number]["label"]
                    assert origin == number // 12
                    seen.add(number)
            assert seen == set(range(24))
