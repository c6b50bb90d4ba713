"""HDF5 files: `hr.formats.Hdf5`. h5py comes from a folder of tools/package_env.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_damage, check_orders, check_rows, check_workers

import headrace as hr
from headrace import errors
from headrace.formats import Hdf5

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "hdf5.md"
ROWS = 30


@pytest.fixture(autouse=True)
def cache(h5py: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def images(first: int = 0, count: int = ROWS) -> np.ndarray[Any, Any]:
    rows = np.arange(first, first + count, dtype=np.uint16)
    return rows[:, None, None] * np.ones((5, 7), np.uint16) + np.arange(7, dtype=np.uint16)


def write(h5py: Any, path: Path, first: int = 0, count: int = ROWS, **options: Any) -> Path:
    """Images with a layout, labels and small vectors in a group."""
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images(first, count), **options)
        file["meta/label"] = np.arange(first, first + count)
        file["meta/vector"] = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
    return path


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"chunks": (4, 5, 7)},
    {"chunks": (1, 5, 7), "maxshape": (None, 5, 7)},
    {"chunks": (64, 5, 7), "maxshape": (None, 5, 7)},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_rows_are_those_of_h5py(h5py: Any, tmp_path: Path, layout: Any, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("images", data=images(), **layout)
        file["meta/label"] = np.arange(ROWS)
    dataset, own = check_rows(path)
    assert dataset.format == "hdf5"
    assert dataset.fields == ("images", "meta_label")
    assert [each.is_inline for each in dataset.index.fields] == [False, True]
    assert len(own) == ROWS
    assert dataset[3]["images"].tolist() == images()[3].tolist()


GZIP: list[dict[str, Any]] = [
    {"chunks": (1, 5, 7), "compression": "gzip"},
    {"chunks": (1, 5, 7), "compression": "gzip", "compression_opts": 9, "shuffle": True},
    {"chunks": (1, 5, 7), "compression": "gzip", "maxshape": (None, 5, 7)},
]


@pytest.mark.parametrize("layout", GZIP, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "bool"])
def test_rows_that_are_a_compressed_chunk_each_are_decompressed(
    h5py: Any, tmp_path: Path, layout: Any, dtype: str
) -> None:
    path = tmp_path / "a.h5"
    shapes = {"chunks": (1, 20, 7)} | ({"maxshape": (None, 20, 7)} if "maxshape" in layout else {})
    with h5py.File(path, "w") as file:
        data = np.repeat(images() * 7, 4, axis=1).astype(dtype)
        file.create_dataset("images", data=data, **layout | shapes)
        file.create_dataset("label", data=np.arange(ROWS), compression="gzip")
        file["noise"] = np.random.default_rng(3).random((ROWS, 50))
    dataset, _ = check_rows(path)
    image = dataset.index.fields[0]
    assert (image.coding, image.is_shuffled) == ("zlib", "shuffle" in layout)
    assert [each.coding for each in dataset.index.fields[1:]] == ["stored", "stored"]


def test_compressed_rows_in_every_order(h5py: Any, tmp_path: Path) -> None:
    for part in range(3):
        write(h5py, tmp_path / f"p{part}.h5", 10 * part, 10, **GZIP[1])
    dataset, own = check_rows(tmp_path / "p{0..2}.h5")
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)
    write(h5py, tmp_path / "p2.h5", 20, 10, **GZIP[0])
    with pytest.raises(errors.InvalidArgumentError, match=r"p2\.h5: its fields are .*'deflate'"):
        hr.open(tmp_path / "p{0..2}.h5")


def test_files_of_one_compressed_chunk(h5py: Any, tmp_path: Path) -> None:
    for shuffle in (False, True):
        folder = tmp_path / f"cosmo-{shuffle}"
        write_universes(h5py, folder, chunks=(6, 6, 6, 4), compression="gzip", shuffle=shuffle)
        row = Hdf5(columns=("full", "unitPar", "redshifts"))
        dataset, own = check_rows(folder, row)
        assert len(own) == 9
        assert dataset.index.fields[0].coding == "zlib"
    with pytest.raises(errors.InvalidArgumentError, match=r"one sample, \[6, 6, 6, 4\]"):
        hr.open(
            write_universes(h5py, tmp_path / "c", chunks=(2, 6, 6, 4), compression="gzip"),
            format=row,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunks": (4, 5, 7), "compression": "gzip"}, r"\(deflate\) in chunks of \[4, 5, 7\]"),
        ({"chunks": (1, 5, 7), "compression": "lzf"}, r"\(lzf\) in chunks of .*undoes gzip, with"),
        ({"chunks": (1, 5, 7), "shuffle": True}, r"filtered \(shuffle\)"),
        ({"chunks": (1, 5, 7), "fletcher32": True}, r"\(fletcher32\)"),
        (
            {"chunks": (1, 5, 7), "compression": "gzip", "fletcher32": True},
            r"\(deflate, fletcher32\)|\(fletcher32, deflate\)",
        ),
        ({"chunks": (1, 5, 7), "scaleoffset": 0}, r"\(scaleoffset\)"),
    ],
)
def test_other_filters_are_refused_by_name(
    h5py: Any, tmp_path: Path, options: Any, message: str
) -> None:
    path = write(h5py, tmp_path / "a.h5", **options)
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        hr.open(path)
    assert "h5repack -f NONE" in str(caught.value)


def test_a_chunk_that_skipped_its_filters_is_refused(h5py: Any, tmp_path: Path) -> None:
    path = write(h5py, tmp_path / "a.h5", **GZIP[0])
    with h5py.File(path, "a") as file:
        file["images"].id.write_direct_chunk((3, 0, 0), images()[3].tobytes(), filter_mask=1)
    with pytest.raises(errors.InvalidArgumentError, match=r"1 chunks .* the first of row 3"):
        hr.open(path)


def test_damage_of_compressed_chunks_is_an_error(h5py: Any, tmp_path: Path) -> None:
    path = write(h5py, tmp_path / "damaged.h5", count=3, **GZIP[1])
    dataset = hr.open(path)
    index = dataset.index
    _, offsets, sizes = index.extents(0)
    chunks = [
        at
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
        for at in range(offset, offset + size)
    ]
    refused = check_damage(
        [path], lambda: hr.open(path, format="hdf5"), lambda size: chunks, rounds=300
    )
    assert refused > 200


def test_a_user_block_shifts_the_rows(h5py: Any, tmp_path: Path) -> None:
    for layout in LAYOUTS[:2]:
        with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
            file.create_dataset("images", data=images(), **layout)
        check_rows(tmp_path / "a.h5")


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int64", "float16", "float32", "float64"]
)
def test_types(h5py: Any, tmp_path: Path, dtype: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = images().astype(dtype)
        file["y"] = np.zeros((ROWS, 100), dtype)
    dataset, _ = check_rows(tmp_path / "a.h5")
    assert dataset[3]["x"].dtype == dtype


def test_every_order_with_tiers_and_resumes_and_workers(h5py: Any, tmp_path: Path) -> None:
    for part in range(3):
        write(h5py, tmp_path / f"p{part}.h5", 10 * part, 10, chunks=(4, 5, 7))
    dataset, own = check_rows(tmp_path / "p{0..2}.h5")
    assert [int(each["meta_label"]) for each in own] == list(range(ROWS))
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)


def write_universes(h5py: Any, folder: Path, count: int = 9, **options: Any) -> Path:
    """As CosmoFlow: each file has one volume and its parameters."""
    folder.mkdir()
    for i in range(count):
        with h5py.File(folder / f"univ_{i:03}.hdf5", "w") as file:
            file.create_dataset("full", data=np.full((6, 6, 6, 4), i, np.int16), **options)
            file["unitPar"] = np.full(4, i / 10, np.float32)
            file["redshifts"] = np.float64(i)
            file["namePar"] = np.array([b"Omega_m", b"sigma_8", b"N_spec", b"H_0"])
    return folder


@pytest.mark.parametrize("chunks", [None, (6, 6, 6, 4), (2, 6, 6, 4)])
def test_files_of_one_sample(h5py: Any, tmp_path: Path, chunks: Any) -> None:
    folder = write_universes(h5py, tmp_path / "cosmo", chunks=chunks)
    with pytest.raises(errors.InvalidArgumentError, match="'namePar' holds text; leave it out"):
        hr.open(folder)
    row = Hdf5(columns=("full", "unitPar", "redshifts"))
    dataset, own = check_rows(folder, row)
    assert len(own) == 9
    assert dataset[3]["full"].shape == (6, 6, 6, 4)
    assert float(dataset[3]["redshifts"]) == 3
    assert [each.is_inline for each in dataset.index.fields] == [False, True, True]
    assert len(hr.open(folder / "univ_{000..004}.hdf5", format=row)) == 5
    one = folder / "univ_000.hdf5"
    with pytest.raises(errors.InvalidArgumentError, match=r"numbers of rows: {'full': 6"):
        hr.open(one, format=row)
    assert len(check_rows(one, Hdf5(columns=row.columns, sample="file"))[1]) == 1


def test_the_index_follows_the_folder(h5py: Any, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write(h5py, tmp_path / "d/a.h5")
    assert len(hr.open(tmp_path / "d")) == ROWS
    write(h5py, tmp_path / "d/b.h5")
    assert len(hr.open(tmp_path / "d")) == 2 * ROWS
    write(h5py, tmp_path / "d/b.h5", count=3)
    assert len(hr.open(tmp_path / "d")) == ROWS + 3


def test_compressed_labels_are_copied_into_the_index(h5py: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["images"] = images()
        file.create_dataset("label", data=np.arange(ROWS), compression="gzip")
        file.create_dataset("big", data=images(), compression="gzip", shuffle=True)
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"'big' is compressed or filtered \(shuffle, deflate\).*`h5repack -f NONE -l CONTI a",
    ):
        hr.open(path)
    assert len(check_rows(path, Hdf5(columns=("images", "label")))[1]) == ROWS
    assert len(check_rows(path, Hdf5(inline=("big",)))[1]) == ROWS


def make(h5py: Any, path: Path, kind: str) -> None:
    with h5py.File(path, "w", track_order=True) as file:
        if kind == "big-endian":
            file["x"] = images().astype(">u2")
        elif kind == "variable":
            file.create_dataset("x", (3,), h5py.vlen_dtype(np.int32))
        elif kind == "text":
            file.create_dataset("x", (3,), h5py.string_dtype())
        elif kind == "compound":
            file["x"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
        elif kind == "complex":
            file["x"] = np.zeros(3, "c8")
        elif kind == "uint64":
            file["x"] = np.zeros(3, "u8")
        elif kind == "empty":
            file["x"] = h5py.Empty("f4")
        elif kind == "references":
            file.create_dataset("x", (3,), h5py.ref_dtype)
        elif kind == "array":
            file.create_dataset("x", (3,), np.dtype(("i4", (2,))))
        elif kind == "virtual":
            layout = h5py.VirtualLayout((ROWS, 50), "i4")
            layout[:] = h5py.VirtualSource("b.h5", "x", (ROWS, 50))
            file.create_virtual_dataset("x", layout)
        elif kind == "external":
            file.create_dataset("x", (ROWS, 50), "i4", external=[("b.raw", 0, ROWS * 200)])
        elif kind == "compact":
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((3, 50))
            h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, plist)
        elif kind == "tiles":
            file.create_dataset("x", data=images(), chunks=(4, 5, 3))
        elif kind == "unwritten":
            file.create_dataset("x", (ROWS, 50), "i4")
        elif kind == "holes":
            file.create_dataset("x", (ROWS, 50), "i4", chunks=(3, 50))[4] = 3
        elif kind == "scalar":
            file["x"] = 3
        elif kind == "no bytes":
            file["x"] = np.zeros((3, 0))
        elif kind == "twice":
            file["a/x"], file["a_x"] = images(), images()
        elif kind == "lengths":
            file["x"], file["y"] = images(), images()[:3]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("big-endian", r"values are big-endian \(>u2\)"),
        ("variable", "'x' holds values of variable length; leave it out with columns="),
        ("text", "'x' holds text"),
        ("compound", r"'x' holds records with fields \(a, b\), a compound type"),
        ("complex", "'x' holds complex64, no numbers"),
        ("uint64", "have dtype uint64"),
        ("empty", "is empty"),
        ("references", "'x' holds references"),
        ("array", "'x' .*"),
        ("virtual", "'x' is virtual: its rows lie in other files"),
        ("external", "'x' lies in external files"),
        ("compact", "'x' has the compact layout, and more than 64 bytes"),
        ("tiles", r"has chunks of \[4, 5, 3\]: a row of \[5, 7\] is not one range"),
        ("unwritten", "'x' has rows that were never written"),
        ("holes", "'x' has rows that were never written"),
        ("scalar", "differ in their numbers of rows"),
        ("no bytes", "has samples of zero bytes"),
        ("twice", "two datasets would be the field 'a_x'"),
        ("lengths", r"numbers of rows: {'x': 30, 'y': 3}; choose those"),
        ("nothing", "it has no datasets"),
    ],
)
def test_what_is_no_range_of_bytes_is_refused_by_name(
    h5py: Any, tmp_path: Path, kind: str, message: str
) -> None:
    path = tmp_path / "a.h5"
    make(h5py, path, kind)
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        hr.open(path)
    assert str(path) in str(caught.value)


def write_linked(h5py: Any, folder: Path) -> Path:
    """Rows under several names, and other files that links lead to."""
    write(h5py, folder / "other.h5", first=700)
    with h5py.File(write(h5py, folder / "a.h5"), "a") as file:
        file["hard"], file["group"] = file["images"], file["meta"]
        file["soft"] = h5py.SoftLink("/images")
        file["soft_group"] = h5py.SoftLink("/meta")
        file["itself"] = h5py.ExternalLink("a.h5", "/images")
    return folder / "a.h5"


def test_a_dataset_of_several_names_is_one_field(h5py: Any, tmp_path: Path) -> None:
    path = write_linked(h5py, tmp_path)
    rows = check_rows(path)[1]
    assert len(rows) == ROWS
    assert list(hr.open(path)[0]) == ["group_vector", "hard", "group_label"]
    for name in ("images", "hard", "soft", "/soft", "itself"):
        dataset = hr.open(path, format=Hdf5(columns=(name, "soft_group/label")))
        assert list(dataset[0]) == [name.strip("/"), "soft_group_label"]
        np.testing.assert_array_equal(dataset[3][name.strip("/")], images()[3])


@pytest.mark.parametrize("other", ["hard", "soft", "itself", "./images"])
def test_two_names_of_one_dataset_are_refused(h5py: Any, tmp_path: Path, other: str) -> None:
    path = write_linked(h5py, tmp_path)
    says = f"'{other}' is 'images' by another name; take columns=(.*)$"
    with pytest.raises(errors.InvalidArgumentError, match=says) as caught:
        hr.open(path, format=Hdf5(columns=("images", other, "meta/label")))
    advice = str(caught.value).rsplit("columns=", 1)[1]
    assert advice == "('images', 'meta/label')"
    assert list(hr.open(path, format=Hdf5(columns=("images", "meta/label")))[0]) == [
        "images",
        "meta_label",
    ]


@pytest.mark.parametrize(
    ("file_name", "inside", "says"),
    [
        ("other.h5", "/images", r"leads to other.h5 \(/images\), another file"),
        ("other.h5", "/meta/label", r"leads to other.h5 \(/meta/label\), another file"),
        ("other.h5", "/", r"leads to other.h5 \(/\), another file"),
        ("gone.h5", "/images", r"leads to gone.h5 \(/images\), which is not there"),
        ("other.h5", "/nope", r"leads to other.h5 \(/nope\), which is not there"),
        (None, "/nope", "leads to /nope, which is not there"),
        (None, "/x/away", "leads to /x/away, which is not there"),
    ],
)
def test_links_that_lead_away_are_refused(
    h5py: Any, tmp_path: Path, file_name: str | None, inside: str, says: str
) -> None:
    write(h5py, tmp_path / "other.h5", first=700)
    # Longer than the other file, so that places in that one lie in this one, too.
    path = write(h5py, tmp_path / "a.h5", count=4 * ROWS)
    with h5py.File(path, "a") as file:
        link = h5py.ExternalLink(file_name, inside) if file_name else h5py.SoftLink(inside)
        file["x/away"] = link
    with pytest.raises(errors.InvalidArgumentError, match=f"its link 'x/away' {says}") as caught:
        hr.open(path)
    columns = ("images", "meta/label", "meta/vector")
    assert str(caught.value).endswith(f"take the file's own datasets with columns={columns}")
    dataset = hr.open(path, format=Hdf5(columns=columns))
    np.testing.assert_array_equal(dataset[3]["images"], images()[3])
    named = "x/away/images" if inside == "/" else "x/away"
    says = "is a link to another file, .*other.h5; open" if says.endswith("another file") else says
    with pytest.raises(errors.InvalidArgumentError, match=says):
        hr.open(path, format=Hdf5(columns=(named,)))


@pytest.mark.parametrize("kind", ["virtual", "virtual, not there", "external"])
def test_small_datasets_of_other_files_are_not_copied(h5py: Any, tmp_path: Path, kind: str) -> None:
    write(h5py, tmp_path / "other.h5")
    (tmp_path / "b.raw").write_bytes(bytes(4 * ROWS))
    path = write(h5py, tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        if kind == "external":
            file.create_dataset("x", (ROWS,), "i4", external=[("b.raw", 0, ROWS * 4)])
        else:
            other = "gone.h5" if kind.endswith("there") else "other.h5"
            layout = h5py.VirtualLayout((ROWS,), "i8")
            layout[:] = h5py.VirtualSource(other, "meta/label", (ROWS,))
            file.create_virtual_dataset("x", layout)
    for options in ({}, {"format": Hdf5(columns=("x",))}, {"format": Hdf5(inline=("x",))}):
        with pytest.raises(errors.InvalidArgumentError, match=r"'x' (is virtual|lies in external)"):
            hr.open(path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ("nope",)}, "no dataset 'nope'; it has images, meta/label, meta/vector"),
        ({"columns": ("meta",)}, "no dataset 'meta'"),
        ({"columns": ()}, "columns= names none"),
        ({"columns": "images"}, "must be an iterable"),
        ({"inline": ("nope",)}, "inline='nope': there are images"),
        ({"sample": "rows"}, "must be one of 'row', 'file'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    h5py: Any, tmp_path: Path, options: Any, message: str
) -> None:
    path = write(h5py, tmp_path / "a.h5")
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.open(path, format=Hdf5(**options))


def test_files_that_differ_are_refused(h5py: Any, tmp_path: Path) -> None:
    write(h5py, tmp_path / "a0.h5")
    with h5py.File(tmp_path / "a1.h5", "w") as file:
        file["images"] = images()
    with pytest.raises(errors.InvalidArgumentError, match=r"a1\.h5: its fields are \[\('images'"):
        hr.open(tmp_path / "a{0,1}.h5")
    with pytest.raises(errors.NotFoundError, match=r"a2\.h5: no such file"):
        hr.open(tmp_path / "a{0,2}.h5")


def test_without_h5py_the_error_says_how_to_install_it(
    h5py: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(h5py, tmp_path / "a.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'headrace\[hdf5\]'"):
        hr.open(path)


def test_other_files_are_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"no HDF5")
    with pytest.raises(errors.InvalidArgumentError, match="this is a file of"):
        hr.open(tmp_path / "a.h5")
    with pytest.raises(errors.DataLossError, match=r"a\.h5: h5py cannot read it: .*copy or write"):
        hr.open(tmp_path / "a.h5", format="hdf5")


@pytest.mark.parametrize("chunks", [None, (4, 5, 7)])
def test_damage_is_an_error_that_names_the_file(h5py: Any, tmp_path: Path, chunks: Any) -> None:
    path = write(h5py, tmp_path / "damaged.h5", chunks=chunks)
    hr.open(path)
    whole = path.read_bytes()
    data = {
        at
        for row in images()
        for at in range(whole.find(row.tobytes()), whole.find(row.tobytes()) + 70)
    }
    described = [at for at in range(len(whole)) if at not in data and whole[at]]
    refused = check_damage(
        [path], lambda: hr.open(path, format="hdf5"), lambda size: described, rounds=300
    )
    assert refused > 100


def test_the_page_is_true(h5py: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in range(4):
        write(h5py, tmp_path / f"train-{part}.h5", 8 * part, 8)
    write_universes(h5py, tmp_path / "cosmo")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"hr": hr}
    exec(block, names)
    assert len(names["dataset"]) == 32
    assert names["universes"].fields == ("full", "unitPar")
