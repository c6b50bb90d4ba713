"""A state belongs to content: a copy of a dataset continues, another dataset does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_json
from format_checks import plain
from small_datasets import BATCH, FORMATS, ROWS, Written, picture

import headrace as hr
from headrace import errors
from headrace._loading import content

TAKEN = 2  # batches before the state is saved


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=FORMATS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    return Written(request.param, tmp_path)


def as_plain(batch: Any) -> list[Any]:
    return [plain(list(field) if field.dtype == object else field) for field in map(rows, batch)]


def rows(field: Any) -> Any:
    if isinstance(field, list):
        made = np.empty(len(field), object)
        made[:] = field
        return made
    return np.asarray(field)


def begun(written: Written) -> tuple[dict[str, Any], list[Any]]:
    """A state in the first epoch, as a checkpoint keeps it, and the rest of the epoch."""
    with written.loader() as loader:
        batches = iter(loader)
        for _ in range(TAKEN):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        return state, list(map(as_plain, batches))


def test_a_copy_continues(written: Written) -> None:
    state, rest = begun(written)
    assert len(rest) == ROWS // BATCH - TAKEN
    for root in (written.copy(), written.copy("elsewhere/deeper")):
        with written.loader(root) as loader:
            assert loader.dataset.content == state["content"]
            loader.load_state_dict(state)
            assert list(map(as_plain, loader)) == rest
    with written.loader(written.later(written.root)) as loader:
        loader.load_state_dict(state)
        assert list(map(as_plain, loader)) == rest


def resume(written: Written, root: Path, state: dict[str, Any]) -> None:
    """Reads the rest: in packs, checksums notice other bytes."""
    with written.loader(root) as loader:
        loader.load_state_dict(state)
        for _ in loader:
            pass


def test_a_copy_with_other_bytes_is_refused(written: Written) -> None:
    state, _ = begun(written)
    refusals = []
    for number, file in enumerate(written.files(written.copy())):
        root = written.copy(f"copy-{number}")
        changed = root / file.relative_to(written.root.with_name("there"))
        data = bytearray(changed.read_bytes())
        is_shard = file.suffix == ".arrow" and file.name.startswith("shard-")  # of a pack
        for at in range(len(data) // 8, len(data), 64) if is_shard else [len(data) // 8]:
            data[at] ^= 1
        changed.write_bytes(data)
        with pytest.raises(errors.HeadraceError) as refusal:
            resume(written, root, state)
        refusals.append(str(refusal.value))
        shutil.rmtree(root)
        if number == 3:
            break
    assert all(refusals)


def test_a_copy_with_a_longer_file_is_refused(written: Written) -> None:
    state, _ = begun(written)
    root = written.copy()
    file = max(written.files(root), key=lambda each: each.stat().st_size)
    with file.open("ab") as more:
        more.write(bytes(512))
    with pytest.raises(errors.HeadraceError):
        resume(written, root, state)


def refusal_of(written: Written, root: Path, state: Any, **options: Any) -> str:
    with written.loader(root) as loader, pytest.raises(errors.FailedPreconditionError) as refusal:
        loader.load_state_dict(state, **options)
    return str(refusal.value)


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    written = Written("folder", tmp_path)
    state, _ = begun(written)
    longer, renamed, missing, new, same = map(written.copy, ("a", "b", "c", "d", "e"))
    with (longer / "class1/04.png").open("ab") as file:
        file.write(b"more")
    (renamed / "class1/04.png").rename(renamed / "class1/05.png")
    (missing / "class2/23.png").unlink()
    (new / "class2/24.png").write_bytes(picture(1))
    data = bytearray((same / "class1/04.png").read_bytes())
    data[60] ^= 1
    (same / "class1/04.png").write_bytes(data)
    size = len(picture(4))
    assert f"/a/class1/04.png had {size} bytes, and has {size + 4}" in refusal_of(
        written, longer, state
    )
    assert "/b/class1/05.png is where class1/04.png was" in refusal_of(written, renamed, state)
    assert "class2/23.png is missing" in refusal_of(written, missing, state)
    assert "/d/class2/24.png is new" in refusal_of(written, new, state)
    assert "all names and sizes are equal, but bytes of files differ" in refusal_of(
        written, same, state
    )


def test_a_refusal_names_the_file_that_was_changed_in_place(tmp_path: Path) -> None:
    written = Written("folder", tmp_path)
    state, _ = begun(written)
    (written.root / "class0/00.png").write_bytes(picture(0) + b"more")
    run_json("index", written.root)
    assert "/here/class0/00.png had" in refusal_of(written, written.root, state)


def test_a_refusal_names_the_sample_whose_value_differs(tmp_path: Path) -> None:
    written = Written("manifest", tmp_path)
    state, _ = begun(written)
    root = written.copy()
    text = (root / "rows.csv").read_text()
    (root / "rows.csv").write_text(text.replace(f"images/4.png,a,{4 / 7}", "images/4.png,a,9.5"))
    assert "sample 4: its field 'score' differs" in refusal_of(written, root, state)


def test_another_dataset_of_the_same_shape_is_taken_if_asked_for(tmp_path: Path) -> None:
    written = Written("npy", tmp_path)
    state, rest = begun(written)
    other, fewer = written.copy("other"), written.copy("fewer")
    np.save(other / "rows.npy", -np.load(other / "rows.npy"))
    np.save(fewer / "rows.npy", np.load(fewer / "rows.npy")[1:])
    said = refusal_of(written, other, state)
    assert said.endswith("continue with load_state_dict(state, strict=False)")
    with written.loader(other) as loader:
        loader.load_state_dict(state, strict=False)
        found = [batch.sample_id.tolist() for batch in loader]
    assert [plain(np.array(each)) for each in found] == [each[-1] for each in rest]
    said = refusal_of(written, fewer, state, strict=False)
    assert f"the state is of '{ROWS} samples of value', this dataset has {ROWS - 1} sampl" in said


def test_a_state_of_an_earlier_version_knows_its_place_alone(tmp_path: Path) -> None:
    written = Written("npy", tmp_path)
    state, rest = begun(written)
    old = {key: state[key] for key in state if key not in ("content", "sampled", "dataset")}
    with written.loader() as loader:
        loader.load_state_dict(old)
        assert list(map(as_plain, loader)) == rest
    root = written.copy()
    assert "its files have changed or were copied since" in refusal_of(written, root, old)
    assert "does not tell whether strict=False" in refusal_of(written, root, old, strict=False)


def test_files_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    written = Written("folder", tmp_path)
    with written.loader() as loader:
        (written.root / "class0/00.png").write_bytes(picture(1))
        state = loader.state_dict()
    assert state["sampled"] == content.UNREADABLE
    (written.root / "class0/00.png").write_bytes(picture(0))
    said = refusal_of(written, written.copy(), state)
    assert "could not be compared when the state was saved" in said


def test_what_is_read_is_bounded_and_covers_small_data(tmp_path: Path) -> None:
    """And a change anywhere in data of a moderate size is seen as often as the page says."""
    written = Written("folder", tmp_path)
    index = hr.open(written.root).index
    columns = index.pieces(content.PIECES, content.PIECE_BYTES, 5)
    covered = {
        (number, byte)
        for number, offset, size in np.column_stack(columns).tolist()
        for byte in range(offset, offset + size)
    }
    whole = {(i, byte) for i in range(ROWS) for byte in range(index.object(i)[1])}
    assert covered == whole
    few = np.column_stack(index.pieces(10, 3, 5))
    assert len(few) <= 20
    assert few[:, 2].sum() == 30
    assert not np.array_equal(few, np.column_stack(index.pieces(10, 3, 6)))
