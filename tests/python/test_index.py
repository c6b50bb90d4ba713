"""Opening datasets: a folder as ImageFolder reads it, the cached index, wrong input."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace import _core, _dataset, errors
from headrace.formats._base.cache import cache_path
from headrace.pack import write_pack

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def image_folder(root: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """ImageFolder's rule, told again: (classes, [(path, label)])."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for where, _, files in sorted(os.walk(root / name, followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(EXTENSIONS):
                    samples.append((os.path.join(where, file), label))
    return classes, samples


def check_equal(dataset: hr.Dataset, root: Path) -> None:
    classes, samples = image_folder(root)
    assert list(dataset.classes) == classes
    assert len(dataset) == len(samples)
    for number, (path, label) in enumerate(samples):
        sample = dataset.read(number)
        assert sample["image"] == Path(path).read_bytes(), path
        assert sample["label"] == label


def test_samples_and_labels_are_those_of_image_folder(folder: Path) -> None:
    check_equal(hr.open(folder), folder)


def test_nested_folders_odd_names_links_and_other_files_are_read_as_image_folder_does(
    folder: Path,
) -> None:
    picture = (folder / "ant" / "000.jpg").read_bytes()
    last = "a-b/x.Tiff" if _core.decodes_tiff else "a-b/x.WebP"
    for name in ("B/1.JPG", "a/10.jpeg", "a/9.png", "a b/ä.webp", last, "a/z.jpg"):
        path = folder / "deep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture + name.encode())
    (folder / "deep" / "0.jpg").write_bytes(picture)
    (folder / "deep" / "notes.txt").write_text("no image")
    (folder / "stray.jpg").write_bytes(picture)
    (folder / "linked").symlink_to(folder / "bee", target_is_directory=True)
    (folder / "cat" / "link.jpg").symlink_to(folder / "ant" / "001.jpg")
    check_equal(hr.open(folder), folder)


def test_the_index_is_kept_and_used_until_a_folder_changes(folder: Path, cache: Path) -> None:
    first = hr.open(folder)
    (kept,) = (cache / "headrace").iterdir()
    made = kept.stat().st_ino
    calls: list[int] = []
    assert hr.open(folder, progress=calls.append).fingerprint == first.fingerprint
    assert calls == []
    assert kept.stat().st_ino == made
    (folder / "bee" / "extra.jpg").write_bytes(b"an image")
    os.utime(folder / "bee", ns=(1, 1))  # whatever the clock's grain
    assert len(hr.open(folder)) == len(first) + 1
    assert len(first) == 60  # what is open stays as it was


def test_a_damaged_kept_index_is_made_anew(folder: Path, cache: Path) -> None:
    hr.open(folder)
    (kept,) = (cache / "headrace").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    check_equal(hr.open(folder), folder)


def test_an_index_can_be_kept_where_the_caller_says(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.hri"
    dataset = hr.open(folder, index=path)
    assert path.exists()
    assert not (tmp_path / "cache").exists()
    assert hr.open(path).fingerprint == dataset.fingerprint
    check_equal(hr.open(path), folder)


def test_nothing_but_an_index_of_this_folder_is_replaced(folder: Path, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"dear")
    with pytest.raises(errors.InvalidArgumentError, match=r"must end with \.hri"):
        hr.open(folder, index=photo)
    odd = tmp_path / "odd.hri"
    odd.write_bytes(b"dear")
    with pytest.raises(errors.DataLossError):
        hr.open(folder, index=odd)
    assert photo.read_bytes() == odd.read_bytes() == b"dear"
    other = tmp_path / "other"
    folder.rename(other)
    kept = tmp_path / "kept.hri"
    hr.open(other, index=kept)
    other.rename(folder)
    with pytest.raises(errors.InvalidArgumentError, match=r"is one of .*other; name another"):
        hr.open(folder, index=kept)


def test_without_a_cache_folder_one_warning_and_no_file_left(folder: Path, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = f"import headrace as hr; print(len(hr.open({str(folder)!r})))"
    environment = os.environ | {"XDG_CACHE_HOME": str(blocker), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "60"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "XDG_CACHE_HOME" in done.stderr
    assert list(temporary.iterdir()) == []


def test_progress_is_told_and_can_stop_the_walk(folder: Path, cache: Path) -> None:
    def stop(found: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hr.open(folder, progress=stop)
    assert list((cache / "headrace").iterdir()) == []


def test_a_file_changed_since_indexing_is_named(folder: Path) -> None:
    dataset = hr.open(folder)
    changed = folder / "ant" / "000.jpg"
    data = changed.read_bytes()
    changed.write_bytes(data + b"more")
    with pytest.raises(
        errors.FailedPreconditionError,
        match=r"000\.jpg bytes .*: file changed .*; run `headrace index",
    ):
        dataset.read(0)
    changed.write_bytes(data)
    os.utime(changed, ns=(1, 1))
    with pytest.raises(errors.FailedPreconditionError, match=r"ant/000\.jpg bytes .*: file cha"):
        dataset.read(0)
    changed.unlink()
    with pytest.raises(errors.NotFoundError, match=r"ant/000\.jpg bytes .*: no such file"):
        dataset.read(0)
    assert dataset.read(1)["image"]


def test_a_sample_that_is_not_there_is_an_index_error(folder: Path) -> None:
    dataset = hr.open(folder)
    with pytest.raises(IndexError, match="samples 0 to 59"):
        dataset.read(60)
    with pytest.raises(IndexError):
        dataset.read(-1)
    for other in ("0", True):
        with pytest.raises(errors.InvalidArgumentError, match=f"got {other!r}, must be an integer"):
            dataset.read(other)  # type: ignore[arg-type]


def test_the_repr_says_what_it_is(folder: Path) -> None:
    text = repr(hr.open(folder))
    for part in (str(folder), "folder", "60 samples", "3 classes", "image: image", "label: int64"):
        assert part in text


def _nothing(root: Path) -> Path:
    return root / "a" / "b"


def _dangling(root: Path) -> Path:
    (root / "newest").symlink_to("/no/where")
    return root / "newest"


def _below_dangling(root: Path) -> Path:
    return _dangling(root) / "a" / "b"


def _empty(root: Path) -> Path:
    return root


def _loose_files(root: Path) -> Path:
    (root / "x.txt").write_text("1")
    return root


def _half_a_pack(root: Path) -> Path:
    (root / "shard-00000.arrow").write_bytes(b"1")
    return root


def _a_file(root: Path) -> Path:
    (root / "x.dat").write_bytes(b"1")
    return root / "x.dat"


def _long_name(root: Path) -> Path:
    return root / ("a" * 300)


def _empty_class(root: Path) -> Path:
    (root / "ant").mkdir()
    return root


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (_nothing, errors.NotFoundError, "no such file or folder .*exists as far as"),
        (_dangling, errors.NotFoundError, "newest is a link to /no/where, which is not there; po"),
        (_below_dangling, errors.NotFoundError, "/newest is a link to /no/where, which is not"),
        (_empty, errors.InvalidArgumentError, "the folder is empty; name one that has the data"),
        (_loose_files, errors.InvalidArgumentError, r"only files \(1 \.txt\); headrace opens:"),
        (_half_a_pack, errors.InvalidArgumentError, r"pack\.hri is missing: copy"),
        (_a_file, errors.InvalidArgumentError, r"x\.dat: this is a file of 1 byte,.*headrace"),
        (_long_name, errors.InvalidArgumentError, "File name too long"),
        (_empty_class, errors.InvalidArgumentError, "ant"),
    ],
)
def test_wrong_input_is_told_what_was_found_and_what_is_recognised(
    tmp_path: Path, cache: Path, make: object, kind: type[Exception], says: str
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    assert callable(make)
    with pytest.raises(kind, match=says):
        hr.open(make(root))
    assert not list(cache.rglob("*.hri"))  # nothing half-written


def test_indexing_names_a_link_to_nothing_but_not_one_to_a_file(folder: Path) -> None:
    link = folder / "link"
    link.symlink_to("ant/000.jpg")
    with pytest.raises(
        errors.InvalidArgumentError, match=f"{link}: this is a file of .*no dataset"
    ):
        _dataset.index_folder(link)
    (folder / "ant" / "000.jpg").unlink()
    with pytest.raises(
        errors.NotFoundError, match=r"is a link to ant/000\.jpg, which is not there"
    ):
        _dataset.index_folder(link)


def test_bulk_answers_equal_single_ones(folder: Path) -> None:
    index = hr.open(folder).index
    objects, offsets, sizes = index.extents(0)
    assert objects.dtype == offsets.dtype == sizes.dtype == np.uint64
    for sample in range(0, 60, 7):
        one = index.extents(0, sample, 1)
        assert [int(part[0]) for part in one] == [objects[sample], offsets[sample], sizes[sample]]
        assert index.object(int(objects[sample]))[1] == sizes[sample]
    labels = index.inline_values(1)
    assert labels.dtype == np.int64
    assert labels.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert index.inline_values(1, 19, 2).tolist() == [0, 1]
    assert index.checksums(0) is None
    with pytest.raises(errors.OutOfRangeError, match="the index has 60"):
        index.extents(0, 59, 2)
    with pytest.raises(errors.OutOfRangeError, match="the index has 60"):
        index.inline_values(1, 61)
    with pytest.raises(errors.InvalidArgumentError, match='"label": is inline'):
        index.extents(1)
    with pytest.raises(errors.OutOfRangeError, match="field 2"):
        index.extents(2)


def test_an_index_outlives_its_arrays_and_arrays_their_index(folder: Path) -> None:
    objects = hr.open(folder).index.extents(0)[0]
    assert objects.tolist() == list(range(60))


def test_hashes_are_xxh3() -> None:
    assert _core.hash64(b"") == 0x2D06800538D394C2
    data = bytes(range(256))
    offsets = np.array([0, 10, 256], np.uint64)
    sizes = np.array([256, 5, 0], np.uint64)
    expected = [_core.hash64(data), _core.hash64(data[10:15]), _core.hash64(b"")]
    assert _core.hash64_ranges(data, offsets, sizes).tolist() == expected
    with pytest.raises(errors.OutOfRangeError, match="range 2 ends past the 256 bytes"):
        _core.hash64_ranges(data, offsets, np.array([1, 1, 1], np.uint64))


def test_a_cache_path_differs_by_root() -> None:
    assert cache_path("/a/data") != cache_path("/b/data")
    with warnings.catch_warnings():
        assert Path(cache_path("/a/data")).name.startswith("data-")


def test_nothing_is_written_where_an_index_of_the_folder_would_see_it(
    folder: Path, tmp_path: Path
) -> None:
    dataset = hr.open(folder)
    before = dataset.fingerprint
    (tmp_path / "link").symlink_to(folder)
    inside = "it lies in the dataset .* name a place outside it"
    for place in (folder, tmp_path / "link"):
        for target in (place / "p", place / "ant" / "p"):
            with pytest.raises(errors.InvalidArgumentError, match=f"packing to .*: {inside}"):
                write_pack(dataset, target)
        with pytest.raises(errors.InvalidArgumentError, match=f"index file .*: {inside}"):
            hr.open(folder, index=place / "ant" / "x.hri")
        with pytest.raises(errors.InvalidArgumentError, match=f"index file .*: {inside}"):
            _dataset.index_folder(folder, place / "ant" / "x.hri")
    with hr.Loader(dataset, 4) as loader:
        for write, name in ((loader.trace, "x.json"), (loader.report, "x.png")):
            with pytest.raises(errors.InvalidArgumentError, match=inside):
                write(folder / "ant" / name)
        loader.trace(folder / "beside.json")  # Beside the class folders it is seen by nobody.
    assert hr.open(folder, index=folder / "beside.hri").fingerprint == before
    assert sorted(each.name for each in folder.iterdir() if each.is_dir()) == ["ant", "bee", "cat"]
    assert hr.open(folder).index.folder_is_current()
    assert hr.open(folder).fingerprint == before


def test_a_class_folder_that_is_a_link_is_protected_under_its_own_name(
    folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (folder / "cat").rename(elsewhere)
    (folder / "cat").symlink_to(elsewhere)
    dataset = hr.open(folder)
    for loop in (".", ".."):  # What is around the dataset is no class.
        (folder / f"loop{loop}").symlink_to(loop)
    inside = "it lies in the dataset .* name a place outside it"
    with pytest.raises(errors.InvalidArgumentError, match=f"packing to .*: {inside}"):
        write_pack(dataset, elsewhere / "p")
    with pytest.raises(errors.InvalidArgumentError, match=f"index file .*: {inside}"):
        hr.open(folder, index=elsewhere / "x.hri")
    with pytest.raises(errors.InvalidArgumentError, match=inside):
        hr.Loader(dataset, tiers=[hr.tiers.Ssd(elsewhere / "tier", "1MB")])
    write_pack(dataset, tmp_path / "beside")
    assert len(hr.open(tmp_path / "beside")) == len(dataset)
    hr.open(folder, index=folder / "x.hri", skip="loop*")


def test_a_tier_in_the_folder_of_an_index_file_is_refused(folder: Path, tmp_path: Path) -> None:
    hr.open(folder, index=tmp_path / "x.hri")
    with pytest.raises(errors.InvalidArgumentError, match="it lies in the dataset"):
        hr.Loader(tmp_path / "x.hri", tiers=[hr.tiers.Ssd(folder / "cache", "1MB")])
    assert not (folder / "cache").exists()
