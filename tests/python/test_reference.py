"""The tables of options and statistics in docs/ are those that follow from their declarations."""

from __future__ import annotations

import pytest

from reference import DOCS, PAGES, written


@pytest.mark.parametrize("page", PAGES)
def test_a_page_s_reference_is_what_follows_from_the_declarations(page: str) -> None:
    found = (DOCS / page).read_text(encoding="utf-8")
    assert found == written(page), "rewrite it: python tools/reference.py --fix"
