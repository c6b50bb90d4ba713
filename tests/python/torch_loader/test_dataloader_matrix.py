"""Every combination of the DataLoader's features is right or is refused: docs/combinations.md."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from dataloader_cells import FACTORS, REFUSALS, refusal, whole
from dataloader_run import Given, Run, image_folder
from matrix_cells import covering_cells, page_rows, words, written
from test_map_engine import write_table

CELLS = [
    *covering_cells(FACTORS, REFUSALS, 3 if os.environ.get("HEADRACE_SOAK") == "1" else 2),
    *(whole({factor: values[0] for factor, values in row.when.items()}) for row in REFUSALS),
]


@pytest.fixture(scope="module")
def given(vision: Any, images: Path, tmp_path_factory: Any) -> Given:
    table = write_table(tmp_path_factory.mktemp("rows") / "rows.arrow", 0, 53)
    return Given(table, image_folder(vision, images))


@pytest.mark.parametrize("cell", CELLS, ids=words)
def test_a_cell_gives_the_batches_of_torch_or_is_refused(cell: Any, given: Given) -> None:
    row = refusal(cell)
    if row is None:
        Run(cell, given).check()
        return
    with pytest.raises(Exception, match=re.escape(row.message)):
        Run(cell, given).refuse()


def test_every_refusal_is_reached_alone() -> None:
    alone = [[each for each in REFUSALS if each.applies(cell)] for cell in CELLS]
    assert all([row] in alone for row in REFUSALS)


def test_the_page_lists_the_factors_and_what_is_refused() -> None:
    factors = [(factor, ", ".join(values)) for factor, values in FACTORS.items()]
    assert page_rows("factor of DataLoader") == factors
    assert page_rows("cells of DataLoader") == written(REFUSALS)
