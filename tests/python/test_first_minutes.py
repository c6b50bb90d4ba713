"""Small things that people try first: version, pages of docs, pickles, logs, statistics to read."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from loader_data import write_numbered
from test_cli import run

import headrace as hr
from headrace.errors import FailedPreconditionError, OutOfRangeError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert hr.__version__ == version("headrace")
    assert run("--version").stdout.startswith(f"headrace {hr.__version__} (Python 3.")


def test_without_a_command_help_is_printed() -> None:
    assert "Start with" in run(code=2).stdout


def test_every_page_is_in_the_package_and_a_wrong_name_gets_the_right_one() -> None:
    pages = run("docs").stdout.splitlines()
    files = [*DOCS.glob("*.md"), *DOCS.glob("formats/*.md"), *DOCS.glob("guides/*.md")]
    names = sorted(str(path.relative_to(DOCS).with_suffix("")) for path in files)
    assert [line.split()[0] for line in pages] == names
    assert run("docs", "quality", "--raw").stdout == (DOCS / "quality.md").read_text()
    assert "The verdict" in run("docs", "docs/quality.md").stdout
    assert "did you mean 'quality'?" in run("docs", "qualty", code=2).stderr


def test_what_help_and_docstrings_point_to_is_there() -> None:
    import re

    package = Path(hr.__file__).parent
    named = set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        named |= set(re.findall(r"headrace docs ([a-z-]+)[`)]", text))
        assert not re.search(r"[\"( ]docs/[a-z-]+\.md", text), path
    assert len(named) > 10
    assert named <= {path.stem for path in DOCS.glob("*.md")}


def test_completion_of_a_shell_is_offered() -> None:
    assert "--install-completion" in run("--help").stdout


def test_a_dataset_is_read_by_number_and_iterated(numbered: Path) -> None:
    dataset = hr.open(numbered)
    assert dataset[3] == dataset.read(3)
    assert dataset[-1] == dataset.read(len(dataset) - 1)
    assert dataset[np.int64(2)] == dataset.read(2)
    for wrong in (len(dataset), -len(dataset) - 1):
        with pytest.raises(OutOfRangeError, match=str(wrong)):
            dataset[wrong]
    assert [sample["label"] for sample in dataset] == [
        dataset.read(i)["label"] for i in range(len(dataset))
    ]


def skipped_index(folder: Path, path: Path) -> Path:
    hr.open(folder, index=path, skip=":hidden")
    return path


@pytest.mark.parametrize("kind", ["folder", "pack", "named index", "skip", "index with skip"])
def test_a_dataset_pickles_to_one_of_the_same_samples(
    kind: str, numbered: Path, source_pack: Path, tmp_path: Path
) -> None:
    dataset = {
        "folder": lambda: hr.open(numbered),
        "pack": lambda: hr.open(source_pack),
        "named index": lambda: hr.open(numbered, index=tmp_path / "own.hri"),
        "skip": lambda: hr.open(numbered, skip=":hidden"),
        "index with skip": lambda: hr.open(skipped_index(numbered, tmp_path / "own.hri")),
    }[kind]()
    blob = pickle.dumps(dataset)
    assert len(blob) < 1000
    script = f"import pickle; d = pickle.loads({blob!r}); print(d.fingerprint, len(d), d.skip)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.stdout == f"{dataset.fingerprint} {len(dataset)} {dataset.skip}\n", told.stderr


def test_a_pickled_dataset_whose_files_changed_is_refused(tmp_path: Path) -> None:
    folder = write_numbered(tmp_path / "images")
    blob = pickle.dumps(hr.open(folder))
    (next(folder.iterdir()) / "zz.jpg").write_bytes(b"more")
    with pytest.raises(FailedPreconditionError, match="not those of when it was pickled"):
        pickle.loads(blob)


def test_what_a_loader_does_is_logged(numbered: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="headrace"), hr.Loader(numbered, batch_size=4):
        pass
    said = [(each.name, each.getMessage()) for each in caplog.records]
    assert any(name == "headrace.loader" and text.startswith("opened ") for name, text in said)
    assert said[-1] == ("headrace.loader", f"closed {numbered}")


def test_statistics_read_well_and_stay_a_dict(numbered: Path) -> None:
    with hr.Loader(numbered, batch_size=4, output="numpy") as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    lines = repr(stats).splitlines()
    assert lines[0].startswith("verdict ")
    assert any(line.startswith("delivered") and " samples/s" in line for line in lines)
    assert json.loads(json.dumps(stats))["batches"] == stats["batches"]
    plain = pickle.loads(pickle.dumps(stats))
    assert type(plain).__module__ == "collections"
    assert plain == dict(stats)
    del stats["memory"]  # type: ignore[misc]
    assert repr(stats).startswith("{")


def test_a_checkpoint_with_statistics_is_loaded_without_headrace(
    numbered: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    with hr.Loader(numbered, batch_size=4) as loader:
        next(iter(loader))
        torch.save({"stats": loader.stats()}, tmp_path / "checkpoint.pt")
    loaded = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert loaded["stats"]["batches"] == 1
