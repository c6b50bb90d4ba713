"""How cells are written: delimiters, quotes, headers, blanks, numbers that become others."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advice import column, formats_in, opened_by_advice, refusal
from format_checks import check_rows
from rank_scripts import real_packages

import headrace as hr
from headrace import errors
from headrace.formats import Manifest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path: Path, rows: list[list[Any]], **options: Any) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, **options).writerows(rows)
    return path


def opened(path: Path, row: Manifest | None = None) -> tuple[hr.Dataset, str]:
    """The dataset, and the text of the warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = hr.open(path, format=row)
    return dataset, " ".join(str(each.message) for each in caught)


def kinds(dataset: hr.Dataset) -> dict[str, int]:
    return {each.kind: each.count for each in dataset.report}


ROWS: list[list[Any]] = [["text", "n"], ["a, b; c", 1], ['say "x"', 2], ["two\nlines", 3]]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_other_delimiters_are_named(tmp_path: Path, suffix: str, delimiter: str) -> None:
    path = write(tmp_path / f"a.{suffix}", ROWS, delimiter=delimiter)
    if delimiter == {"csv": ",", "tsv": "\t"}[suffix]:
        dataset = hr.open(path)
    else:
        message = refusal(path)
        assert "looks as if separated by" in message
        (dataset, one_cell) = opened_by_advice_or_none(path, formats_in(message))
        assert one_cell is None or one_cell.fields != ("text", "n")
        check_rows(path, formats_in(message)[0])
    assert column(dataset, "text") == [row[0] for row in ROWS[1:]]
    assert column(dataset, "n") == [1, 2, 3]


def opened_by_advice_or_none(path: Path, rows: list[Any]) -> list[Any]:
    """What each format opens; the second takes the line for one cell, which later lines are not."""
    found: list[Any] = [hr.open(path, format=rows[0])]
    try:
        found.append(hr.open(path, format=rows[1]))
    except errors.DataLossError:
        found.append(None)
    return found


def test_one_column_whose_texts_have_semicolons(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [["a;b"], ["c;d"], ["e;f"]])
    by_semicolons, as_it_is = opened_by_advice(path)
    assert by_semicolons.fields == ("a", "b")
    assert column(as_it_is, "a;b") == ["c;d", "e;f"]
    path = write(tmp_path / "b.csv", [["text"], ["c;d"], ["e;f"]])
    assert column(hr.open(path), "text") == ["c;d", "e;f"]


def test_options_that_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS)
    for options in (
        {"delimiter": ";;"}, {"delimiter": ""}, {"delimiter": 3}, {"delimiter": "\n"},
        {"quote": "ab"}, {"quote": "ü"}, {"quote": ",", "delimiter": ","}, {"strip": "yes"},
    ):  # fmt: skip
        with pytest.raises(errors.InvalidArgumentError, match=r"manifest (delimiter|quote|strip)"):
            hr.open(path, format=Manifest(**options))  # type: ignore[arg-type]


# Quotes.


TEXTS = ['say "yes"', '"no', "plain", 'end"', "x"]


def unquoted(path: Path, texts: list[str], delimiter: str) -> Path:
    """As awk, or a join in a program, writes rows: without quotes around cells."""
    rows = [["id", "text"], *([str(i), each] for i, each in enumerate(texts))]
    path.write_text("".join(delimiter.join(each) + "\n" for each in rows))
    return path


@pytest.mark.parametrize(("name", "delimiter"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_a_quote_that_is_not_closed_swallows_no_rows_silently(
    tmp_path: Path, name: str, delimiter: str
) -> None:
    path = unquoted(tmp_path / name, TEXTS, delimiter)
    dataset, said = opened(path)
    assert len(dataset) == 3
    assert kinds(dataset) == {"rows_in_quotes": 1}
    assert "1 quoted value over lines that look like rows: 'line 3'" in said
    (advised,) = formats_in(said)
    whole, said = opened(path, advised)  # type: ignore[arg-type]
    assert (column(whole, "text"), said, kinds(whole)) == (TEXTS, "", {})
    check_rows(path, advised)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
@pytest.mark.parametrize("texts", [["a", '"b', "c"], ["a", '"b" c', "d"], ["a", '"b', '"c', "d"]])
def test_quotes_that_end_wrongly_are_refused_with_advice(
    tmp_path: Path, name: str, texts: list[str]
) -> None:
    path = unquoted(tmp_path / name, texts, "\t" if name == "a.tsv" else ",")
    assert "line 3" in refusal(path)
    (whole,) = opened_by_advice(path)
    assert column(whole, "text") == texts


@pytest.mark.parametrize(("name", "cut"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_rows_of_other_cells_without_quotes_are_not_advised_about_them(
    tmp_path: Path, name: str, cut: str
) -> None:
    path = tmp_path / name
    for row in ("3", f"3{cut}c{cut}d"):
        path.write_text(f'x{cut}text\n1{cut}"a"\n{row}\n')
        message = refusal(path)
        assert "line 3 (byte " in message
        assert "quote=None" not in message


def test_many_swallowed_rows_and_values_of_several_lines(tmp_path: Path) -> None:
    texts = [f"row {i}" for i in range(50)]
    texts[7], texts[30] = '"seven', 'thirty"'
    path = unquoted(tmp_path / "a.csv", texts, ",")
    assert kinds(opened(path)[0]) == {"rows_in_quotes": 1}
    prose = ["Well, no.\nYes, maybe", "one\ntwo\nthree", "a,\nb, c", "\n" * 40]
    rows = [["id", "text"], *([i, each] for i, each in enumerate(prose))]
    dataset, said = opened(write(tmp_path / "b.csv", rows))
    assert (column(dataset, "text"), said) == (prose, "")
    dataset, said = opened(write(tmp_path / "b.tsv", rows, delimiter="\t"))
    assert (column(dataset, "text"), said) == (prose, "")


def test_other_quotes(tmp_path: Path) -> None:
    rows = [["text", "n"], ["it's, so", 1], ['"', 2]]
    path = write(tmp_path / "a.csv", rows, quotechar="'")
    dataset, _ = check_rows(path, Manifest(quote="'"))
    assert column(dataset, "text") == ["it's, so", '"']


def test_long_cells(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [["id", "text"], [1, 'a "b"' + "x" * 200_000], [2, "c"]])
    message = refusal(path)
    assert "field larger than field limit" in message
    (call,) = re.findall(r"csv\.field_size_limit\((.*?)\)", message)
    before = csv.field_size_limit(eval(call))
    try:
        assert len(hr.open(path)[0]["text"]) == 200_005
    finally:
        csv.field_size_limit(before)
    lines = [f"{i},plain {i}" for i in range(20_000)]
    lines[5] = '5,"not closed'
    path = tmp_path / "b.csv"
    path.write_text("id,text\n" + "\n".join(lines) + "\n")
    (whole,) = opened_by_advice(path)
    assert (len(whole), whole[5]["text"]) == (20_000, '"not closed')


# Headers.


def test_columns_without_a_name_have_their_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [["", "text", " "], [0, "a", "x"], [1, "b", "y"]])
    dataset, _ = check_rows(path)
    assert dataset.fields == ("column1", "text", "column3")
    assert column(dataset, "column1") == [0, 1]
    dataset, _ = check_rows(path, Manifest(columns=("text",)))
    assert dataset.fields == ("text",)


def test_a_table_without_a_header_is_refused_with_one(tmp_path: Path) -> None:
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        rows = [["a", 1, 2], ["b", 3, 4]]
        path = write(tmp_path / name, rows, delimiter=delimiter)
        message = refusal(path)
        assert "cell 2 is '1'; if it is a name, write it with a letter, as 'y1'" in message
        header = message.rpartition("such as ")[2]
        path.write_text(header + "\n" + path.read_text())
        dataset, _ = check_rows(path)
        assert dataset.fields == ("column1", "column2", "column3")
        assert column(dataset, "column3") == [2, 4]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_blanks_around_names_are_counted_and_taken_off(tmp_path: Path, suffix: str) -> None:
    delimiter = "," if suffix == "csv" else "\t"
    path = tmp_path / f"a.{suffix}"
    rows = [["text", " label", "n "], ["a", " cat", " 5"], ["b", " dog", " 6"]]
    path.write_text("".join(delimiter.join(each) + "\n" for each in rows))
    dataset, said = opened(path)
    assert dataset.fields == ("text", " label", "n ")
    assert kinds(dataset) == {"blanks": 2}
    assert "2 column names with blanks around them: ' label', 'n '" in said
    (advised,) = formats_in(said)
    dataset, said = opened(path, advised)  # type: ignore[arg-type]
    assert (dataset.fields, said) == (("text", "label", "n"), "")
    assert (dataset.classes, column(dataset, "n")) == (("cat", "dog"), [5, 6])
    check_rows(path, advised)


def test_tables_of_a_pattern_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "a-0.csv", [["n", "m"], [1, 2]])
    write(tmp_path / "a-1.csv", [["n"], [1]])
    message = refusal(tmp_path / "a-{0..1}.csv")
    assert "a-1.csv: its columns are 'n', those of" in message
    write(tmp_path / "a-1.csv", [["m", "n"], [4, 3]])
    assert column(hr.open(tmp_path / "a-{0..1}.csv"), "n") == [1, 3]


# Numbers.


def test_numbers_that_became_infinite_are_counted(tmp_path: Path) -> None:
    cells = ["1e400", "-1e999", "1e300", "0.5", "inf", "9" * 400 + ".5"]
    path = write(tmp_path / "a.csv", [["n", "t"], *([each, "x"] for each in cells)])
    dataset, said = opened(path)
    assert column(dataset, "n") == [float(each) for each in cells]
    assert kinds(dataset) == {"infinite": 3}
    (advised,) = formats_in(said)
    assert column(opened(path, advised)[0], "n") == cells  # type: ignore[arg-type]
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1e400}\n{"n": 0.5}\n{"n": Infinity}\n{"n": -1e400}\n')
    dataset, said = opened(path)
    assert kinds(dataset) == {"infinite": 2}
    assert "line 1" in said
    assert np.isinf(dataset[0]["n"])


@pytest.mark.parametrize("name", ["version", "label"])
def test_numbers_that_are_spelled_twice_are_counted(tmp_path: Path, name: str) -> None:
    cells = ["1.1", "1.10", "1.2", "1.20", "1.200", "2.0", "2"]
    path = write(tmp_path / "a.csv", [[name, "t"], *([each, "x"] for each in cells)])
    dataset, said = opened(path)
    assert kinds(dataset) == {"spellings": 2}
    (advised,) = formats_in(said)
    dataset, said = opened(path, advised)  # type: ignore[arg-type]
    assert (column(dataset, name), said) == (cells, "")


@pytest.mark.parametrize("word", ["NA", "null", "None", "-"])
def test_words_for_no_value_among_numbers_are_counted(tmp_path: Path, word: str) -> None:
    rows = [["n", "t", "m"], [1, word, 0.5], [word, "b", 1], [3, "c", word]]
    path = write(tmp_path / "a.csv", rows)
    dataset, said = opened(path)
    assert column(dataset, "n") == ["1", word, "3"]
    assert kinds(dataset) == {"numbers_as_text": 2}
    assert f"'{word} in column " in said.replace('"', "'")
    (advised,) = formats_in(said)
    filled, *_ = opened_by_advice(path, advised)
    assert (column(filled, "n"), column(filled, "m")) == ([1, 0, 3], [0.5, 1, 0])
    check_rows(path, filled.format_row)
    rows = [["n", "t"], ["07030", "NA"], ["10001", "x"], ["y", "z"]]
    dataset, said = opened(write(tmp_path / "b.csv", rows))
    assert (said, column(dataset, "t")) == ("", ["NA", "x", "z"])


def test_numbers_of_one_width_are_no_finding(tmp_path: Path) -> None:
    cells = ["1.10", "1.25", "3.00", "0.50", "100.00"]
    dataset, said = opened(write(tmp_path / "a.csv", [["n", "t"], *([c, "x"] for c in cells)]))
    assert (column(dataset, "n"), said) == ([1.1, 1.25, 3, 0.5, 100], "")


# pandas.


WRITE = """
import io, json, sys
import numpy, pandas
table = pandas.DataFrame({"text": ["a", None, "c, d"], "n": [1.5, None, 2], "k": [1, 2, 3]})
texts = {
    "index.csv": table.to_csv(), "plain.csv": table.to_csv(index=False),
    "tabs.tsv": table.to_csv(sep="\\t"), "semicolons.csv": table.to_csv(sep=";", decimal=","),
    "numbers.csv": pandas.DataFrame(numpy.eye(3)).to_csv(),
    "lines.jsonl": table.to_json(orient="records", lines=True),
}
json.dump(texts, sys.stdout)
"""


def test_what_pandas_writes(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(real_packages("loaders")), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", WRITE], capture_output=True, env=env, check=True)
    for name, text in json.load(io.BytesIO(done.stdout)).items():
        (tmp_path / name).write_text(text)
    for name in ("index.csv", "plain.csv", "tabs.tsv", "lines.jsonl"):
        path = tmp_path / name
        for each in formats_in(refusal(path))[:2]:
            dataset, _ = check_rows(path, each)
            assert column(dataset, "text") == ["a", "", "c, d"]
            assert column(dataset, "n") == [1.5, 0, 2]
        assert ("column1" in dataset.fields) == (name in ("index.csv", "tabs.tsv"))
    (semicolons, _) = formats_in(refusal(tmp_path / "semicolons.csv"))
    assert column(hr.open(tmp_path / "semicolons.csv", format=semicolons), "k") == [1, 2, 3]
    dataset = hr.open(tmp_path / "numbers.csv")
    assert dataset.fields == ("column1", "column2", "column3", "column4")
    assert column(dataset, "column3") == [0, 1, 0]
