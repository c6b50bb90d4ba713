"""The Arrow files of a folder of `datasets`, saved by it or its cache; of a path, of a pattern."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from headrace import _places
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.formats._files.patterns import expand

STATE, INFO, DICT = "state.json", "dataset_info.json", "dataset_dict.json"
SUFFIXES = (".arrow", ".feather")
_JSON_BYTES_MAX = 64 * 2**20
_AGAIN = "copy or save the dataset again"


@dataclass(frozen=True)
class Saved:
    """What is to be read."""

    files: tuple[str, ...]
    beside: tuple[str, ...] = ()
    """Files that describe it: the index depends on them, too."""
    features: Any = None
    rows: int | None = None
    """If it is known."""


def is_saved(path: str) -> bool:
    """Whether the path is a folder of `datasets`, an Arrow file, or a pattern of such files."""
    if _places.is_folder(path):
        if _places.is_file(os.path.join(path, DICT)):
            return True
        if not _places.is_file(os.path.join(path, INFO)):
            return False  # Without a list of its files, which may be millions.
        names = _places.names(path)
        return STATE in names or any(name.endswith(".arrow") for name in names)
    first = expand(path)[0]
    return first.endswith(SUFFIXES) and _places.is_file(first)


def saved_at(path: str, split: str | None) -> Saved:
    """What there is at a path that `is_saved` knows; `split` chooses if there are several."""
    if not _places.is_folder(path):
        _refuse_split(path, split, "it is a file of rows")
        return Saved(tuple(expand(path)))
    listed = os.path.join(path, DICT)
    if _places.exists(listed):
        names = _strings(_json(listed), "splits", listed)
        name = _chosen(path, names, split)
        saved = _of_folder(os.path.join(path, name))
        return Saved(saved.files, (listed, *saved.beside), saved.features, saved.rows)
    if _places.exists(os.path.join(path, STATE)):
        _refuse_split(path, split, "it is one dataset, saved without splits")
        return _of_folder(path)
    return _of_cache(path, split)


def _of_folder(folder: str) -> Saved:
    state, info = os.path.join(folder, STATE), os.path.join(folder, INFO)
    content = _json(state)
    for key in ("_indices_files", "_indices_data_files"):
        if content.get(key):
            raise InvalidArgumentError(
                f"indexing {folder}: saved by datasets 1, with a list of rows beside the rows; "
                "save it again: datasets.load_from_disk(...).save_to_disk(...) of a newer version"
            )
    entries = content.get("_data_files")
    if not isinstance(entries, list):
        raise DataLossError(f"indexing {folder}: {state} lists no _data_files; {_AGAIN}")
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    return Saved(_inside(folder, names, state), (state, info), _features(info))


def _of_cache(folder: str, split: str | None) -> Saved:
    """The cache of `load_dataset`: NAME-SPLIT.arrow or NAME-SPLIT-00000-of-00002.arrow."""
    path = os.path.join(folder, INFO)
    info = _json(path)
    splits = info.get("splits")
    if not isinstance(splits, dict) or not splits:
        raise DataLossError(f"indexing {folder}: {path} lists no splits; {_AGAIN}")
    name = _chosen(folder, list(splits), split)
    entry = splits[name] if isinstance(splits[name], dict) else {}
    prefix = f"{entry.get('dataset_name') or info.get('dataset_name')}-{name}"
    shards = entry.get("shard_lengths")
    names: list[Any] = [f"{prefix}.arrow"]
    if isinstance(shards, list) and len(shards) > 1:
        names = [f"{prefix}-{i:05d}-of-{len(shards):05d}.arrow" for i in range(len(shards))]
    rows = entry.get("num_examples")
    return Saved(
        _inside(folder, names, path),
        (path,),
        _features(path),
        rows if isinstance(rows, int) else None,
    )


def _inside(folder: str, names: list[Any], listed: str) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name or not name:
            raise DataLossError(
                f"indexing {folder}: {listed} lists {name!r}, which is no file of this folder; "
                f"{_AGAIN}"
            )
    return tuple(os.path.join(folder, name) for name in names)


def _chosen(path: str, names: list[str], split: str | None) -> str:
    if split is None and len(names) == 1:
        return names[0]
    if split not in names:
        asked = "" if split is None else f"split={split!r} was given, and "
        raise InvalidArgumentError(
            f"opening dataset {path}: {asked}it has the splits {', '.join(names)}; choose one: "
            f"hr.open({path!r}, split={names[0] if names else ''!r})"
        )
    assert split is not None
    return split


def _refuse_split(path: str, split: str | None, why: str) -> None:
    if split is not None:
        raise InvalidArgumentError(
            f"opening dataset {path}: split={split!r} was given, but {why}; leave split out"
        )


def _features(path: str) -> Any:
    features = _json(path).get("features")
    return features if isinstance(features, dict) else None


def _strings(content: dict[str, Any], key: str, path: str) -> list[str]:
    values = content.get(key)
    if (
        not isinstance(values, list)
        or not values
        or not all(
            isinstance(value, str) and os.path.basename(value) == value and value
            for value in values
        )
    ):
        raise DataLossError(f"indexing {path}: it lists no {key}; {_AGAIN}")
    return values


def _json(path: str) -> dict[str, Any]:
    try:
        with _places.open(path) as file:
            text = file.read(_JSON_BYTES_MAX).decode()
        content = json.loads(text)
    except FileNotFoundError as error:
        raise NotFoundError(f"indexing {path}: no such file; {_AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise DataLossError(f"indexing {path}: not JSON: {error}; {_AGAIN}") from error
    except OSError as error:
        raise DataLossError(f"indexing {path}: {error.strerror}; {_AGAIN}") from error
    if not isinstance(content, dict):
        raise DataLossError(f"indexing {path}: not a JSON object; {_AGAIN}")
    return content
