"""`headrace.show`: a first look at a batch, or at samples of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import _html as html
from headrace._arguments import integer, items
from headrace._dataset import Dataset
from headrace._show import pictures
from headrace._signature import named_arguments
from headrace._text import one_line, printable
from headrace._units import counted
from headrace._workers import Padded
from headrace.errors import DataLossError, InvalidArgumentError

_SAMPLES_MAX = 1024
_VALUES_MAX = 8  # of a small array
_TEXT_MAX = 60  # characters
_LABEL, _NUMBER = "label", "sample_id"  # fields of a caption


class ShownField(NamedTuple):
    """A line of the table."""

    name: str
    form: str
    """type and shape"""
    values: str


class Look:
    """What `headrace.show` returns: a notebook shows its pictures, ``print`` its table."""

    def __init__(
        self, what: str, fields: Sequence[ShownField], sheets: Sequence[html.Html]
    ) -> None:
        self.what = what
        self.fields = fields
        self._sheets = sheets

    def __str__(self) -> str:
        lines = [self.what]
        width = [max((len(field[at]) for field in self.fields), default=0) for at in (0, 1)]
        for name, form, values in self.fields:
            lines.append(f"  {name:<{width[0]}}  {form:<{width[1]}}  {values}".rstrip())
        return printable("\n".join(lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        table = html.table(self.fields, head=("field", "form", "values"))
        return html.block(html.title(self.what), table, *self._sheets)


@named_arguments
def show(what: Any, *, classes: Iterable[str] | None = None, samples: int = 16) -> Look:
    """A first look at a batch, or at a dataset: fields, shapes, ranges of values, and pictures.

    Args:
        what: a batch, of a Loader or any other: a tuple, dict, list, tensor or array; one sample of
            a dataset; or a `headrace.Dataset`, of which it reads samples at equal distances.
        classes: names of the labels 0, 1, ...; a dataset has its own.
        samples: number of samples to show as pictures, or to read of a dataset.

    Pictures are scaled down. Image values that are neither bytes nor within 0 to 1 are rescaled
    from their least and greatest value, which a line above the pictures gives.
    """
    count = integer("samples", samples, 1, _SAMPLES_MAX)
    names = None if classes is None else [str(name) for name in items("classes", classes, "names")]
    if hasattr(what, "load_state_dict") and hasattr(what, "__iter__"):
        raise InvalidArgumentError(
            f"show: got a {type(what).__name__}: to take a batch begins an epoch, so take it "
            "yourself: headrace.show(next(iter(loader))); or show its dataset: "
            "headrace.show(loader.dataset)"
        )
    if isinstance(what, Dataset):
        numbers = _spread(len(what), count)
        rows = [what.read(number) for number in numbers]
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in what.fields}
        columns = {name: _plain(column) for name, column in columns.items()}
        few = f"{len(numbers):,} of " if len(numbers) < len(what) else ""
        title = f"{few}{counted(len(what), 'sample')} of {what.path}"
        return _look(title, {**columns, _NUMBER: np.array(numbers)}, names or what.classes, count)
    columns = _columns(what)
    return _look(_title(columns), columns, names or (), count)


def _title(columns: Mapping[str, Any]) -> str:
    values = list(columns.values())
    if any(
        not _is_column(value) or (_is_array(value) and pictures.is_encoded(value))
        for value in values
    ):
        return "a sample"
    rows = {len(value) for value in values}
    return f"a batch of {counted(rows.pop(), 'sample')}" if len(rows) == 1 else "a batch"


def _spread(total: int, count: int) -> list[int]:
    """`count` numbers of `total` samples at equal distances, as those of a class are neighbours."""
    if total <= count:
        return list(range(total))
    return [at * total // count for at in range(count)]


def _columns(what: Any) -> dict[str, Any]:
    """The fields of a batch by name."""
    names = getattr(what, "_fields", None) or getattr(what, "fields", None)
    if isinstance(what, Mapping):
        columns = {str(name): value for name, value in what.items()}
    elif isinstance(names, tuple) and len(names) == len(what):
        columns = dict(zip(map(str, names), what, strict=True))
    elif isinstance(what, (tuple, list)) and any(_is_column(value) for value in what):
        columns = {str(at): value for at, value in enumerate(what)}
    else:
        columns = {"batch": what}
    return {name: _plain(value) for name, value in columns.items()}


def _plain(value: Any) -> Any:
    """Tensors as arrays, bytes as arrays; what holds them likewise."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(value, np.uint8)
    if hasattr(value, "detach"):  # A tensor of torch.
        value = value.detach().cpu()
        kind = str(value.dtype)
        return (value.float() if kind == "torch.bfloat16" else value).numpy()
    if isinstance(value, Padded):
        return _plain(value.data)
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (list, tuple)):
        elements = [_plain(element) for element in value]
        are_numbers = all(_is_array(element) and element.ndim == 0 for element in elements)
        return np.array(elements) if elements and are_numbers else elements
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return np.from_dlpack(value)
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _is_column(value: Any) -> bool:
    if hasattr(value, "shape"):
        return len(value.shape) > 0
    return isinstance(value, (list, tuple))


def _look(title: str, columns: Mapping[str, Any], classes: Sequence[str], count: int) -> Look:
    labels, numbers = columns.get(_LABEL), columns.get(_NUMBER)
    fields, sheets = [], []
    for name, value in columns.items():
        named = classes if name == _LABEL else ()
        fields.append(ShownField(name, _form(value), _values(value, named)))
        sheet = _sheet(value, count, lambda at: _caption(at, labels, numbers, classes))
        if sheet is not None:
            sheets.append(html.joined(html.paragraph(f"{name}{sheet[0]}"), sheet[1]))
    return Look(title, fields, sheets)


def _caption(at: int, labels: Any, numbers: Any, classes: Sequence[str]) -> str:
    parts = []
    if numbers is not None and at < len(numbers):
        parts.append(f"#{int(numbers[at])}")
    if labels is not None:
        label = labels[at] if _is_column(labels) and at < len(labels) else labels
        parts.append(_label(label, classes))
    return " ".join(parts) or str(at)


def _label(value: Any, classes: Sequence[str]) -> str:
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iu" and 0 <= value < len(classes):
        return classes[int(value)]
    return _short(value)


def _sheet(value: Any, count: int, caption: Any) -> tuple[str, html.Html] | None:
    """Pictures of a field, and a remark on them; None if it has no images."""
    rows = _images(value, count)
    if not rows:
        return None
    scale, remark = None, ""
    if rows[0].ndim == 3:
        scale = pictures.scale_of(np.concatenate([row.reshape(-1) for row in rows]))
        remark = "" if scale is None else f", black is {scale.low:.4g} and white {scale.high:.4g}"
    sheet = []
    for at, row in enumerate(rows):
        try:
            shown = pictures.picture_of(row, scale)
        except (DataLossError, InvalidArgumentError) as error:
            sheet.append(html.paragraph(f"{caption(at)}: {error}"))
        else:
            sheet.append(html.picture(*shown, caption(at)))
    return remark, html.joined(*sheet)


def _images(value: Any, count: int) -> list[NDArray[Any]]:
    """The first rows, if they are images, encoded or decoded."""
    if isinstance(value, np.ndarray):
        if pictures.is_encoded(value) or pictures.is_image(value):
            return [value]
        rows: Sequence[Any] = list(value[:count]) if value.ndim == 4 else []
    else:
        rows = value[:count] if isinstance(value, list) else []
    arrays = [row for row in rows if isinstance(row, np.ndarray)]
    images = [row for row in arrays if pictures.is_encoded(row) or pictures.is_image(row)]
    return images if len(images) == len(rows) else []


def _form(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} {' x '.join(map(str, value.shape)) or 'number'}"
    if not isinstance(value, list):
        return type(value).__name__
    kinds = {row.dtype.name if isinstance(row, np.ndarray) else "" for row in value}
    if len(kinds) == 1 and "" not in kinds:
        return f"list of {counted(len(value), f'{kinds.pop()} array')}"
    names = sorted({type(row).__name__ for row in value})
    return f"list of {len(value)} {' or '.join(names) or 'values'}"


def _values(value: Any, classes: Sequence[str]) -> str:
    if isinstance(value, list):
        return _values_of_list(value)
    if not isinstance(value, np.ndarray):
        return _short(value)
    if value.dtype.kind not in "iufb" or value.size == 0:
        return _short(value.tolist())
    if pictures.is_encoded(value):
        return f"an encoded image of {counted(len(value), 'byte')}"
    if (value.ndim <= 1 and value.size <= _VALUES_MAX) or (classes and value.ndim == 1):
        flat = value.reshape(-1)
        more = ", ..." if len(flat) > _VALUES_MAX else ""
        return ", ".join(_label(number, classes) for number in flat[:_VALUES_MAX]) + more
    return _range(value)


def _values_of_list(value: list[Any]) -> str:
    arrays = [row for row in value if isinstance(row, np.ndarray)]
    if not value or len(arrays) < len(value):
        more = ", ..." if len(value) > 3 else ""
        return ", ".join(_short(row) for row in value[:3]) + more
    sizes = [array.size for array in arrays]
    images = "encoded images of " if all(map(pictures.is_encoded, arrays)) else ""
    what = "bytes" if images else "values"
    span = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return f"{images}{span} {what}"


def _range(value: NDArray[Any]) -> str:
    """The least and greatest value, and whether some are no numbers."""
    if value.dtype.kind == "b":
        return f"{int(value.sum()):,} of {value.size:,} are true"
    numbers = value.astype(np.float64) if value.dtype.kind == "f" else value
    is_finite = np.isfinite(numbers)
    finite = numbers[is_finite]
    wrong = value.size - finite.size
    remark = f"; {wrong:,} are not finite numbers" if wrong else ""
    if finite.size == 0:
        return remark.removeprefix("; ")
    form = ".4g" if value.dtype.kind == "f" else ",d"
    least, most = format(finite.min(), form), format(finite.max(), form)
    return f"{least} to {most}, mean {finite.mean():.4g}{remark}"


def _short(value: Any) -> str:
    text = one_line(value if isinstance(value, str) else repr(value))
    if isinstance(value, np.generic):
        text = str(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
