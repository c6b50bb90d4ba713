"""The examples of the pages that have them do what the pages say."""

from __future__ import annotations

import doctest
import re
import shutil
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize(
    ("page", "examples_min"),
    [
        ("loader.md", 16),
        ("observe.md", 9),
        ("torch.md", 19),
        ("dataloader.md", 8),
        ("notebooks.md", 9),
        ("papers.md", 20),
    ],
)
def test_the_examples_of_the_loader_s_pages_run(
    page: str, examples_min: int, numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page == "observe.md":
        pytest.importorskip("matplotlib")
    if page in ("torch.md", "dataloader.md", "papers.md"):
        pytest.importorskip("torch")
    shutil.copytree(numbered, tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    examples = "\n".join(re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, page, str(PAGES / page), 0)
    told: list[str] = []
    result = doctest.DocTestRunner().run(test, out=told.append)
    assert result.attempted >= examples_min
    assert result.failed == 0, "".join(told)
