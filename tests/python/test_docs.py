"""The examples of docs/loader.md do what the page says."""

from __future__ import annotations

import doctest
import re
import shutil
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "loader.md"


def test_the_examples_of_the_loader_s_page_run(
    numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(numbered, tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    examples = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    result = doctest.DocTestRunner().run(test, out=told.append)
    assert result.attempted > 15
    assert result.failed == 0, "".join(told)
