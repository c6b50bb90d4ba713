"""What the columns of a table hold: found in a first pass over its rows, written in a second."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.formats._base.absent import NOT_GIVEN
from headrace.formats._tables.cells import ABSENT_WORDS, Oddities, bare_number
from headrace.formats._tables.column_field import NAMES, ColumnField, flat_list
from headrace.formats._tables.numbers import note_infinite, peak_of, stays_finite
from headrace.formats._tables.row_piece import RowPiece

CLASSES_MAX = 100_000
_SPELLINGS_MAX = 10_000  # different cells of a column that are compared
_INT64 = 2**63
_EXACT_IN_FLOAT = 2**53

_SHORT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})").fullmatch
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_REAL = re.compile(
    r"-?(?:(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?:0|[1-9][0-9]*)[eE][+-]?[0-9]+"
    r"|nan|NaN|inf|-?Infinity)"
).fullmatch

_ABSENT = {"null", "empty"}
_ZEROS: dict[str, Any] = {
    "text": "", "bool": False, "list": [], "integer": 0, "float": 0, "object": "",
}  # fmt: skip
_NO_CLASS = -100  # torch's cross_entropy leaves such labels out.


@dataclass
class ScannedColumn:
    """What a column holds in the rows seen so far."""

    name: str
    as_text: bool = False
    """Its values are kept as text, also numbers."""
    wants_classes: bool = False
    fill: Any = NOT_GIVEN
    """What stands for a value that a row lacks."""
    is_optional: bool = False
    """Whether rows may lack it, as another field says."""
    ways_out: Callable[[str], str] = lambda name: f"keep it as text with text=({name!r},)"
    """What to type where the column, of this name, can be text only."""
    absent: int = 0  # rows without a value
    first: dict[str, str] = field(default_factory=dict)
    """By type of a value where the first one is."""
    table: str = ""
    rows: int = 0
    largest: int = 0  # magnitude of an integer
    shape: tuple[int, ...] | None = None  # of an entry of a list
    floats: str = "float64"  # the type of numbers with fractions
    _peak: float = 0.0  # magnitude in the lists of the last rows
    leaves: set[str] = field(default_factory=set)  # types in lists
    classes: set[str] = field(default_factory=set)
    typed: bool = True
    absent_words: dict[str, None] = field(default_factory=dict)
    cells: set[str] = field(default_factory=set)  # that were compared, by their texts
    spelled: dict[str, str] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)

    def add(self, piece: RowPiece, values: list[Any]) -> None:
        """Notes the types of these values, one a row of the piece."""
        self.rows += len(values)
        self.table, self.typed = piece.path, piece.typed
        self.absent += values.count(None if piece.typed else "")
        if piece.typed:
            kinds = [
                NAMES.get(python_type.__name__, python_type.__name__)
                for python_type in map(type, values)
            ]
        elif "text" in self.first:  # It is text, whatever follows.
            if "" in values and "empty" not in self.first:
                self.first["empty"] = piece.where(values.index(""))
            return
        elif all(map(_SHORT, values)):
            kinds = ["integer"] * len(values)
        elif all(map(_REAL, values)):
            kinds = ["float"] * len(values)
        else:
            text = next((row for row, x in enumerate(values) if _kind_of_cell(x) == "text"), None)
            if text is not None:  # Then it is text, whatever the others are.
                self.first["text"] = piece.where(text)
                self._note_absent_words(values)
                if "" in values and "empty" not in self.first:
                    self.first["empty"] = piece.where(values.index(""))
                return
            kinds = [_kind_of_cell(cell) for cell in values]
        for kind in set(kinds) - self.first.keys():
            self.first[kind] = piece.where(kinds.index(kind))
        if self.as_text:
            return
        present = set(kinds)
        if "integer" in present:
            self._note_integers(piece, values, kinds)
        if "list" in present:
            self._note_lists(piece, values, kinds)

    def _note_absent_words(self, values: list[str]) -> None:
        """Notes cells such as NA that make a column of numbers text."""
        others = set(values) - ABSENT_WORDS - {""}
        if all(_kind_of_cell(other) != "text" for other in others) and (
            others or self.first.keys() & {"integer", "float"}
        ):
            self.absent_words = dict.fromkeys(sorted(ABSENT_WORDS.intersection(values)))

    def note_odd(self, piece: RowPiece, values: list[Any], odd: Oddities) -> None:
        """Notes numbers that became others; after `add`."""
        if not self.as_text:
            for word in self.absent_words:
                odd.add("numbers_as_text", f"{word} in column {self.name!r}", word)
            self.absent_words = {}
        has_floats = "float" in self.first or "float" in self.leaves
        if self.as_text or not has_floats or ("text" in self.first and not piece.typed):
            return
        note_infinite(piece, self.name, values, self.floats, self._peak, odd)
        if not piece.typed:
            self._note_spellings(values, odd)

    def _note_spellings(self, values: list[str], odd: Oddities) -> None:
        """Notes numbers that differ by zeros at their ends only, as 1.10 and 1.1."""
        if len(self.cells) > _SPELLINGS_MAX:
            return
        new = set(values) - self.cells
        self.cells |= new
        for cell in new:
            if (bare := bare_number(cell)) is None:
                continue
            known = self.spelled.setdefault(bare, cell)
            if known != cell and bare not in self.twice:
                self.twice.add(bare)
                odd.add("spellings", f"{known} and {cell} of column {self.name!r}", self.name)

    def _note_integers(self, piece: RowPiece, values: list[Any], kinds: list[str]) -> None:
        whole = [int(value) for value, kind in zip(values, kinds, strict=True) if kind == "integer"]
        self.largest = max(self.largest, max(whole), -min(whole))
        if max(whole) >= _INT64 or min(whole) < -_INT64:
            row = next(
                i for i, k in enumerate(kinds) if k == "integer" and abs(values[i]) >= _INT64
            )
            raise InvalidArgumentError(
                f"{piece.where(row)}: column {self.name!r} is {values[row]!r:.40}, no whole number "
                f"of 64 bits; {self.ways_out(self.name)}"
            )

    def _note_lists(self, piece: RowPiece, values: list[Any], kinds: list[str]) -> None:
        lists = [value for value, kind in zip(values, kinds, strict=True) if kind == "list"]
        flat = flat_list(lists, self.shape)
        if isinstance(flat, str):
            for row, value in enumerate(values):
                if kinds[row] == "list":
                    why = flat_list([value], self.shape)
                    if isinstance(why, str):
                        raise InvalidArgumentError(
                            f"{piece.where(row)}: column {self.name!r} is a list {why}; "
                            f"{self.ways_out(self.name)}"
                        )
                    self.shape = self.shape or why[1]
            raise InvalidArgumentError(
                f"{piece.where(0)}: column {self.name!r} has lists {flat}; "
                f"{self.ways_out(self.name)}"
            )
        leaves, shape = flat
        self.shape = shape if leaves else self.shape
        self.leaves |= {NAMES[python_type.__name__] for python_type in set(map(type, leaves))}
        whole = [leaf for leaf in leaves if type(leaf) is int]
        if whole:
            self.largest = max(self.largest, max(whole), -min(whole))
            if max(whole) >= _INT64 or min(whole) < -_INT64:
                raise InvalidArgumentError(
                    f"{piece.where(kinds.index('list'))}: column {self.name!r}, in this row or "
                    f"one of the next {len(values):,}, has a number of more than 64 bits; "
                    f"{self.ways_out(self.name)}"
                )
        self._peak = peak_of(leaves) if "float" in self.leaves else 0.0

    def note_classes(self, piece: RowPiece, values: list[Any]) -> None:
        """Notes the texts of a column of labels; also of rows that are left out."""
        if len(self.classes) > CLASSES_MAX or self.as_text:
            return
        texts = values if piece.typed else set(values)  # Others may have no hash.
        self.classes.update(text for text in texts if isinstance(text, str) and text)

    def check_names(self) -> None:
        """Raises InvalidArgumentError if a value is no name of a file."""
        others = self.first.keys() - {"text", "integer", "float"} or (
            self.first.keys() - {"text"} if self.typed else set()
        )
        for kind in others - _ABSENT:
            raise InvalidArgumentError(
                f"{self.first[kind]}: column {self.name!r} holds {kind}: it must name a file; "
                "correct the row, or say which columns name files with paths="
            )

    @property
    def first_absent(self) -> str:
        """Where the first row without a value is."""
        return next(self.first[kind] for kind in ("null", "empty") if kind in self.first)

    @property
    def lacks_values(self) -> bool:
        """Whether rows have no value, and nothing stands for it."""
        kinds = self.first.keys()
        if self.fill is not NOT_GIVEN or not kinds & _ABSENT:
            return False
        if self.is_optional:
            return self.is_empty and self.typed  # Its type is unknown.
        is_of_text = not self.typed and ("text" in kinds or kinds == {"empty"} or self.as_text)
        return not is_of_text or self.wants_classes

    @property
    def is_empty(self) -> bool:
        """Whether no row has a value."""
        return self.first.keys() <= _ABSENT

    @property
    def zero(self) -> Any:
        """A value that may stand for one that a row lacks."""
        kinds = self.first.keys() - _ABSENT
        if self.as_text or kinds == {"text"} or ("text" in kinds and not self.typed):
            return _NO_CLASS if self.wants_classes else ""
        return _ZEROS.get(min(kinds, default="integer"), 0)

    def decided(self, declared: str | None) -> ColumnField:
        """What the column holds. Raises InvalidArgumentError if that is no field."""
        if self.fill is NOT_GIVEN and not self.is_optional:
            return self._holds(set(self.first), declared)
        kinds = self.first.keys() - _ABSENT
        if self.fill is NOT_GIVEN:
            column_field = self._holds(kinds or {"empty"}, declared)
            stand_in = 0 if column_field.what == "classes" else self._zero_of(column_field)
            return replace(column_field, stand_in=stand_in, is_optional=True)
        own = NAMES.get(type(self.fill).__name__, "")
        is_number = {own} | kinds <= {"integer", "float"}
        is_text = "text" in kinds and (not self.typed or kinds == {"text"})
        as_label = self.wants_classes and own == "integer" and is_text
        fits = (
            self.as_text or is_number or as_label or kinds <= {own} or (is_text and own == "text")
        )
        if not fits or not own or own in ("null", "object") or (own == "bool" and not self.typed):
            what = " and ".join(sorted(kinds)) or "nothing"
            raise self._refused_fill(f"the column holds {what}")
        if not self.as_text and not as_label:
            kinds |= {own}
            self._note_fill()
        column_field = self._holds(kinds, declared)
        if column_field.what == "number" and np.issubdtype(column_field.dtype, np.integer):
            limits = np.iinfo(column_field.dtype)
            if own != "integer" or not limits.min <= self.fill <= limits.max:
                raise self._refused_fill(f"the column holds {column_field.dtype}")
        if not stays_finite(self.fill, column_field.dtype):
            raise self._refused_fill(f"{column_field.dtype} cannot hold it")
        return replace(column_field, stand_in=self.fill, is_optional=self.is_optional)

    def _zero_of(self, column_field: ColumnField) -> Any:
        return {"text": "", "list": []}.get(column_field.what, 0)

    def _note_fill(self) -> None:
        if type(self.fill) is int:
            self.largest = max(self.largest, abs(self.fill))
        elif isinstance(self.fill, list):
            flat = flat_list([self.fill], self.shape)
            if isinstance(flat, str):
                raise self._refused_fill(f"it is a list {flat}")
            whole = [abs(number) for number in flat[0] if type(number) is int]
            self.largest = max(self.largest, *whole, 0)
            if self.largest >= _INT64:
                raise self._refused_fill("it has a number of more than 64 bits")
            self.leaves |= {NAMES[python_type.__name__] for python_type in set(map(type, flat[0]))}

    def _refused_fill(self, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"indexing {self.table}: fill={{{self.name!r}: {self.fill!r:.80}}}: {why}; give a "
            f"value that it can hold, such as fill={{{self.name!r}: {self.zero!r}}}, or have "
            f"another field say which rows have a value: optional=({self.name!r},)"
        )

    def _holds(self, kinds: set[str], declared: str | None) -> ColumnField:
        if self.as_text:
            if "bytes" in kinds:
                raise self._refused("bytes", "holds bytes")
            return ColumnField("text")
        if "text" in kinds and not self.typed:
            return self._of_text()
        if kinds == {"empty"}:
            return ColumnField("text")
        if kinds == {"text"}:
            return self._of_text()
        if kinds == {"bool"}:
            return ColumnField("number", "bool")
        if kinds == {"list"}:
            leaves = self.leaves or {"float"}
            return ColumnField("list", self._number(leaves, declared), self.shape or ())
        if kinds <= {"integer", "float"}:
            return ColumnField("number", self._number(kinds, declared))
        if len(kinds) > 1:
            one, other = sorted(kinds)[:2]
            raise InvalidArgumentError(
                f"{self.first[other]}: column {self.name!r} holds {other} here and {one} at "
                f"{self.first[one].removeprefix('indexing ')}; {self.ways_out(self.name)}"
            )
        (only,) = kinds
        raise self._refused(only, f"holds {only}, no number, text or list of numbers")

    def _of_text(self) -> ColumnField:
        if not self.wants_classes:
            return ColumnField("text")
        if len(self.classes) > CLASSES_MAX:
            raise self._refused(
                "text", f"has more than {CLASSES_MAX:,} different texts, which are not classes"
            )
        return ColumnField("classes")

    def _number(self, kinds: set[str], declared: str | None) -> str:
        if declared is not None:
            return declared
        if kinds == {"bool"}:
            return "bool"
        if kinds == {"integer"}:
            return "int64"
        if "bool" in kinds:
            raise self._refused(next(iter(self.first)), "mixes numbers, true and false")
        if "integer" in kinds and self.largest > _EXACT_IN_FLOAT:
            raise self._refused(
                "integer" if "integer" in self.first else "list",
                f"has fractions, and whole numbers up to {self.largest:,}, which a float64 cannot "
                "hold exactly",
            )
        return self.floats

    def _refused(self, kind: str, why: str) -> InvalidArgumentError:
        # What makes it unfit may be a value of fill=, of no row.
        where = self.first.get(kind) or next(iter(self.first.values()))
        return InvalidArgumentError(
            f"{where}: column {self.name!r} {why}; {self.ways_out(self.name)}"
        )


def _kind_of_cell(cell: str) -> str:
    if not cell:
        return "empty"
    if _WHOLE(cell):
        return "integer" if -_INT64 <= int(cell) < _INT64 else "text"
    return "float" if _REAL(cell) else "text"
