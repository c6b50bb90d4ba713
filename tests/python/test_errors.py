"""Statuses of the core are exceptions of one tree."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import headrace as hr
from headrace import _core, errors

BUILTINS: dict[type[Exception], type[Exception]] = {
    errors.InvalidArgumentError: ValueError,
    errors.DeadlineExceededError: TimeoutError,
    errors.NotFoundError: FileNotFoundError,
    errors.ResourceExhaustedError: OSError,
    errors.FailedPreconditionError: RuntimeError,
    errors.OutOfRangeError: IndexError,
    errors.InternalError: RuntimeError,
    errors.UnavailableError: OSError,
    errors.DataLossError: OSError,
    errors.TransformError: RuntimeError,
    errors.WorkerLostError: RuntimeError,
}


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n != "HeadraceError"])
def test_every_error_is_a_headrace_error_and_in_the_table(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, hr.HeadraceError)
    assert f"`{name}`" in (errors.__doc__ or "")


@pytest.mark.parametrize("kind", BUILTINS, ids=lambda kind: kind.__name__)
def test_an_error_is_also_the_builtin_that_a_caller_expects(kind: type[Exception]) -> None:
    assert issubclass(kind, BUILTINS[kind])
    error = kind("reading object 7: it has 10 bytes")
    assert str(error) == "reading object 7: it has 10 bytes"
    again = pickle.loads(pickle.dumps(error))  # as it comes from a worker process
    assert type(again) is kind
    assert str(again) == str(error)


def test_a_status_of_the_core_arrives_as_its_exception_with_its_text(tmp_path: Path) -> None:
    missing = tmp_path / "missing.hri"
    with pytest.raises(errors.NotFoundError, match=r"missing\.hri"):
        _core.Index.open(str(missing))
    damaged = tmp_path / "damaged.hri"
    damaged.write_bytes(b"no index at all" * 100)
    with pytest.raises(errors.DataLossError, match=r"damaged\.hri"):
        _core.Index.open(str(damaged))
    contents = _core.IndexContents(1, ".")  # one sample of no fields
    contents.set_attribute("format", "test")
    with pytest.raises((errors.InvalidArgumentError, errors.UnavailableError)):
        _core.write_index(contents, str(tmp_path / "no folder" / "x.hri"))


def test_a_path_of_any_bytes_is_named_so_that_it_can_be_printed(tmp_path: Path) -> None:
    path = bytes(tmp_path) + b"/\xff\xfe.hri"
    with pytest.raises(errors.NotFoundError, match=r"/\\xff\\xfe.hri': ") as raised:
        _core.Index.open(path)
    assert str(raised.value).isprintable()
