"""Formats that pass by headrace/_places are refused: a rule of tools/tidy.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import tidy
from tidy_rules import places

ROOT = Path(__file__).resolve().parent.parent


def found(path: str, text: str) -> list[tuple[int, str]]:
    file = tidy.SourceFile(f"python/headrace/{path}", text)
    tree = SimpleNamespace(files={file.path: file})
    return [(line, rule.partition(":")[0]) for _, line, rule in places.by_places(tree)]


@pytest.mark.parametrize(
    ("path", "text", "line", "name"),
    [
        ("formats/a.py", "import glob\n", 1, "glob"),
        ("formats/a.py", "def f():\n    from pathlib import Path\n", 2, "pathlib"),
        ("formats/_b/a.py", "\nos.scandir(path)\n", 2, "os.scandir"),
        ("_dataset/a.py", "open(path, 'rb')\n", 1, "open"),
        ("formats/a.py", "x = filter(os.path.isdir, y)\n", 1, "os.path.isdir"),
        ("formats/a.py", "np.memmap(path, 'u1')\n", 1, "np.memmap"),
        ("formats/a.py", "os.open(path, local_path(path))\n", 1, "os.open"),
    ],
)
def test_refuses_what_reads_files_itself(path: str, text: str, line: int, name: str) -> None:
    assert found(path, text) == [(line, name)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("formats/a.py", "class A:\n    def open(self):\n        return self.open(1)\n"),
        ("formats/a.py", "os.open(_places.local_path(path), 0)\n"),
        ("formats/a.py", "text = 'open(path)'  # os.stat(path)\n"),
        ("formats/a.py", "os.path.join(a, b)\n_places.open(path)\n"),
        ("formats/_base/cache.py", "import glob\nopen(path)\n"),
        ("pack/a.py", "from pathlib import Path\nopen(path)\n"),
    ],
)
def test_accepts_what_only_looks_like_it(path: str, text: str) -> None:
    assert found(path, text) == []


def test_each_file_that_is_about_local_files_only_is_there_and_still_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = places.LOCAL
    monkeypatch.setattr(places, "LOCAL", {})
    for path in local:
        assert found(path, (ROOT / f"python/headrace/{path}").read_text()), path


def test_is_one_of_the_rules() -> None:
    assert places.by_places in tidy.RULES
