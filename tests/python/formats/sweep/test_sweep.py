"""Odd data in every format: right, or refused by one line that names it and what helps.

`CELLS` has the datasets, by format and oddity; the table is in docs/combinations.md.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from format_checks import calls, formats_in, like, plain
from sweep_cases import ODDITIES, Case, Rows
from sweep_data import FORMATS, cases

import headrace as hr
from headrace import errors

PAGE = Path(__file__).parents[4] / "docs" / "combinations.md"


def page_table() -> list[list[str]]:
    """The rows of the page's table, the first one included."""
    table = PAGE.read_text().partition("\n| format |")[2].partition("\n\n")[0]
    rows = [each.strip("| ").split(" | ") for each in f"format |{table}".splitlines()]
    return [rows[0], *rows[2:]]


def cell_of(checked: Sequence[Case]) -> str:
    """As the page has it."""
    refused = dict.fromkeys(each.name for each in checked if each.rows is None)
    if not checked:
        return "-"
    if not refused:
        return "right"
    if all(each.rows is None for each in checked):
        return "refused"
    return f"right; refused: {', '.join(refused)}"


def check(format: str, oddity: str, folder: Path) -> None:
    checked = []
    for case in cases(format, oddity, folder):
        try:
            check_case(case)
        except BaseException as error:
            error.add_note(f"the case is {case.name!r} of {format}, {oddity}: {case.path}")
            raise
        checked.append(case)
    head, *rows = page_table()
    cells = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert cells[format][oddity] == cell_of(checked)


def check_case(case: Case) -> None:
    if case.rows is None:
        check_refused(case)
    elif case.warns:
        with pytest.warns(RuntimeWarning) as told:
            check_rows(case, case.rows)
        text = "; ".join(str(each.message) for each in told)
        assert [each for each in case.names if str(each) not in text] == [], text
    else:
        check_rows(case, case.rows)


def check_rows(case: Case, rows: Rows) -> None:
    """All values of all samples, from the dataset and from a loader's batches."""
    dataset = hr.open(case.path, **case.options)
    assert len(dataset) == len(rows)
    for number, row in enumerate(rows):
        assert {n: plain(v) for n, v in dataset[number].items()} == {
            n: plain(v) for n, v in row.items()
        }
    number = 0
    for batch in batches(dataset):
        for found in zip(*batch, strict=True):
            wanted = [rows[number][name] for name in dataset.fields]
            read = [like(*each) for each in zip(found, wanted, strict=True)]
            assert [plain(each) for each in read] == [plain(each) for each in wanted]
            number += 1
    assert number == len(rows)


def batches(dataset: hr.Dataset) -> Iterator[list[Any]]:
    """The fields of each batch, in sequence."""
    names = {f"field {number}": name for number, name in enumerate(dataset.fields)}
    output = hr.Output("numpy", fields=names)
    with hr.Loader(dataset, 3, shuffle=False, order="exact", output=output) as loader:
        for batch in loader:
            yield [batch[name] for name in names]


def check_refused(case: Case) -> None:
    """One line, with the names, whose calls open what they say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(errors.HeadraceError) as caught:
            for _ in batches(hr.open(case.path, **case.options)):
                pass
        message = str(caught.value)
        assert "\n" not in message
        assert [each for each in case.names if str(each) not in message] == [], message
        opened = [eval(each, {"hr": hr, "nan": float("nan")}) for each in calls(message)]
        if not opened:
            for row in formats_in(message):
                opened.append(hr.open(case.path, **case.options | {"format": row}))
    assert all(map(len, opened)), message
    assert opened or re.search("[;:] [a-z]", message.partition(": ")[2]), f"no way out: {message}"


@pytest.mark.parametrize("oddity", ODDITIES)
@pytest.mark.parametrize("format", [each for each in FORMATS if each != "HDF5"])
def test_odd_data_are_right_or_refused_by_name(format: str, oddity: str, tmp_path: Path) -> None:
    check(format, oddity, tmp_path)


@pytest.mark.parametrize("oddity", ODDITIES)
def test_odd_hdf5_is_right_or_refused_by_name(h5py: Any, oddity: str, tmp_path: Path) -> None:
    check("HDF5", oddity, tmp_path)


def test_the_page_has_these_formats_and_oddities() -> None:
    head, *rows = page_table()
    assert head == ["format", *ODDITIES]
    assert [row[0] for row in rows] == list(FORMATS)
