"""Files that cannot be decoded, links to nothing, pipes: said when indexing, samples that fail."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loader_data import write_numbered
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats._base.findings import findings_of
from headrace.pack import write_pack

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLAIN = hr.image.resize(8, dtype="uint8")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Six good JPEGs, the numbered 0 to 5, in two classes; and one file of each kind of fault."""
    root = write_numbered(tmp_path / "mixed", (3, 3))
    for name in ("w.ppm", "x.bmp"):
        Image.new("RGB", (9, 7), (200, 200, 200)).save(root / "class0" / name)
    (root / "class0" / "empty.jpg").write_bytes(b"")
    (root / "class1" / "gone.jpg").symlink_to("/no/where.jpg")
    os.mkfifo(root / "class1" / "pipe.jpg")
    (root / "class1" / "up").symlink_to("..")
    Image.new("RGB", (9, 7), (6, 6, 6)).save(root / "class1" / ".hidden.png")
    return root


# In the order of the folder: class0/000 001 002 empty w x, class1/.hidden 003 004 005 gone pipe.
GOOD = {0: 0, 1: 1, 2: 2, 6: 6, 7: 3, 8: 4, 9: 5}  # sample: its grey
BAD = {3, 4, 5, 10, 11}
FOUND = {
    ".bmp": (1, ["class0/x.bmp"]),
    ".ppm": (1, ["class0/w.ppm"]),
    "broken_link": (1, ["class1/gone.jpg"]),
    "empty": (1, ["class0/empty.jpg"]),
    "hidden": (1, ["class1/.hidden.png"]),
    "loop": (1, ["class1/up"]),
    "special": (1, ["class1/pipe.jpg"]),
}


def opened(root: Path, **arguments: Any) -> hr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return hr.open(root, **arguments)


def command(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "headrace", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == code, done.stderr
    return done


def test_what_was_found_is_told_once_when_indexing_and_kept(mixed: Path) -> None:
    with pytest.warns(RuntimeWarning) as told:
        dataset = hr.open(mixed)
    assert len(told) == 1
    text = str(told[0].message)
    for part in (
        "1 of zero bytes: 'class0/empty.jpg'",
        "1 link to nothing: 'class1/gone.jpg'",
        "1 pipe, socket or device: 'class1/pipe.jpg'",
        "does not decode (.ppm): 'class0/w.ppm'",
        'skip=":undecodable"',
        'on_error="substitute"',
    ):
        assert part in text
    assert told[0].filename == __file__
    for again in (dataset, hr.open(mixed)):  # Of the kept index; no second warning.
        assert {each.kind: (each.count, list(each.examples)) for each in again.report} == FOUND
    assert len(dataset) == 12
    assert dataset.skip == ()


@pytest.mark.parametrize("io", ["threads", "io_uring"])
@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_bad_files_are_substituted_and_good_ones_are_given(
    mixed: Path, io: str, order: str
) -> None:
    with hr.Loader(
        opened(mixed),
        4,
        transform=PLAIN,
        shuffle=order != "exact",
        order=order,
        on_error="substitute",
        output=hr.Output("numpy", ids=True),
        engine=hr.EngineOptions(io=io),
    ) as loader:
        pairs = [
            (int(number), int(image[0, 0, 0]))
            for batch in loader
            for number, image in zip(batch.sample_id, batch.image, strict=True)
        ]
        stats = loader.stats()
    assert len(pairs) == 12
    assert {number for number, _ in pairs} <= set(GOOD)
    assert all(abs(GOOD[number] - grey) <= 1 for number, grey in pairs)
    assert stats["substituted"] == len(BAD)
    assert {each["wanted"] for each in stats["substitutions"]} == BAD


@pytest.mark.parametrize("sample", sorted(BAD))
@pytest.mark.parametrize("transform", [None, PLAIN])
def test_a_bad_file_fails_alone_and_by_name(mixed: Path, sample: int, transform: Any) -> None:
    dataset = opened(mixed)
    name = dataset.index.object(sample)[0]
    good = [0, 7, 6]
    with hr.Loader(
        dataset, batch_sampler=[good, [sample]], transform=transform, output="numpy"
    ) as loader:
        batches = iter(loader)
        assert len(next(batches).image) == 3
        if transform is None and sample in (4, 5):  # Their bytes are there.
            (image,) = next(batches).image
            assert image.tobytes() == (mixed / name).read_bytes()
            return
        with pytest.raises(errors.DataLossError, match=re.escape(name)) as caught:
            next(batches)
    if sample not in (4, 5):
        assert 'leave it out with skip=, or give on_error="substitute"' in str(caught.value)


def test_reading_one_sample_says_what_it_is_and_waits_for_no_pipe(mixed: Path) -> None:
    dataset = opened(mixed)
    with pytest.raises(errors.NotFoundError, match=r"gone\.jpg: a link to /no/where\.jpg"):
        dataset.read(10)
    with pytest.raises(errors.FailedPreconditionError, match=r"pipe\.jpg: not a regular file"):
        dataset.read(11)
    assert dataset.read(3)["image"] == b""


def test_formats_that_are_decoded_by_now_are_no_findings_of_an_old_index() -> None:
    report = '[[".webp", 1, ["a.webp"]], ["empty", 1, ["b.jpg"]], [".tiff", 2, ["c.tiff"]]]'
    old: Any = SimpleNamespace(attributes={"report": report})
    assert [each.kind for each in findings_of(old, "x.hri")] == ["empty"]


def test_what_is_skipped_is_as_if_it_were_not_there(mixed: Path, cache: Path) -> None:
    dataset = hr.open(mixed, skip=":undecodable")
    assert [each.kind for each in dataset.report] == ["hidden", "loop", "skipped"]
    assert len(dataset) == 7
    with hr.Loader(dataset, 7, shuffle=False, transform=PLAIN, output="numpy") as loader:
        (batch,) = loader
    greys = batch.image[:, 0, 0, 0].tolist()
    assert np.abs(np.array(greys) - [0, 1, 2, 6, 3, 4, 5]).max() <= 1
    assert batch.label.tolist() == [0, 0, 0, 1, 1, 1, 1]
    for name in ("w.ppm", "x.bmp", "empty.jpg"):
        (mixed / "class0" / name).unlink()
    for name in ("gone.jpg", "pipe.jpg"):
        (mixed / "class1" / name).unlink()
    assert opened(mixed).fingerprint == dataset.fingerprint
    assert len(list(cache.rglob("*.hri"))) == 2  # One a skip=.


def test_skip_takes_names_paths_and_kinds_in_any_order(mixed: Path) -> None:
    first = opened(mixed, skip=["*.ppm", ":hidden", "/class0/000.jpg"])
    assert len(first) == 9
    assert first.skip == ("*.ppm", "/class0/000.jpg", ":hidden")
    assert opened(mixed, skip=(":hidden", "/class0/000.jpg", "*.ppm")).index.fingerprint == (
        first.index.fingerprint
    )
    assert opened(mixed, skip="class0").classes == ("class1",)
    for wrong, says in (
        (":webp", "a kind is one of :undecodable"),
        ("", "must be the name of a file or folder"),
        ([3], "got 3, must be patterns"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=says):
            hr.open(mixed, skip=wrong)  # type: ignore[arg-type]


def test_a_named_index_keeps_its_skip(mixed: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.hri"
    made = opened(mixed, index=path, skip=":undecodable")
    assert hr.open(mixed, index=path).fingerprint == made.fingerprint
    os.utime(mixed / "class0", ns=(1, 1))  # It is made anew, without the same files.
    assert hr.open(mixed, index=path).fingerprint == made.fingerprint
    with pytest.raises(errors.InvalidArgumentError, match=r"was made with skip=\[':undecodable'\]"):
        hr.open(mixed, index=path, skip=[])
    for fixed in (path, tmp_path / "pack"):
        if not fixed.exists():
            write_pack(made, fixed)
        with pytest.raises(errors.InvalidArgumentError, match="its samples are fixed"):
            hr.open(fixed, skip="*.ppm")


def test_a_pack_says_what_its_folder_had(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"gone\.jpg"):
        write_pack(opened(mixed), tmp_path / "pack")
    write_pack(opened(mixed, skip=[":broken_link", ":special"]), tmp_path / "pack")
    pack = hr.open(tmp_path / "pack")
    assert {each.kind for each in pack.report} == {
        *(".bmp", ".ppm", "empty", "hidden", "loop", "skipped")
    }
    with (
        pytest.warns(RuntimeWarning, match="1 of zero bytes: 'class0/empty.jpg'"),
        hr.Loader(pack, 4, transform=PLAIN),
    ):
        pass


def test_the_commands_say_it_too_and_advise_no_deletion(mixed: Path, tmp_path: Path) -> None:
    said = json.loads(command("index", mixed, "--json").stdout)
    assert {each["kind"]: (each["count"], each["examples"]) for each in said["report"]} == FOUND
    text = command("index", mixed).stdout
    assert "files: 1 of zero bytes: 'class0/empty.jpg'" in text
    # An index with skip is not the folder's cached one: the message names the file for training.
    assert 'hr.open(path, skip=":undecodable")' in text
    assert "`headrace index PATH --skip :undecodable -o FILE.hri`" in text
    advised = tmp_path / "good.hri"
    command("index", mixed, "--skip", ":undecodable", "-o", advised)
    assert len(hr.open(advised)) == len(hr.open(mixed, skip=":undecodable")) == 7
    verified = command("verify", mixed, code=1)
    assert "gone.jpg: a link to /no/where.jpg" in verified.stderr
    assert "leave it out with --skip :broken_link (in Python: " in verified.stderr
    assert "pipe.jpg: not a regular file" in verified.stderr
    assert "empty.jpg: zero bytes, no image" in verified.stderr
    assert "3 problems" in verified.stdout
    assert "0 problems" in command("verify", mixed, "--skip", ":undecodable").stdout
    for shown in (verified.stdout, command("inspect", mixed).stdout):
        assert "files: 1 of zero bytes: 'class0/empty.jpg'" in shown
    skipped = json.loads(command("index", mixed, "--skip", ":undecodable", "--json").stdout)
    assert skipped["samples"] == 7
    assert skipped["skip"] == [":undecodable"]
    command("pack", mixed, tmp_path / "pack", "--skip", ":undecodable")
    assert len(hr.open(tmp_path / "pack")) == 7


def test_a_name_with_control_characters_stays_on_its_line(tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "set", (2, 2))
    (root / "class0" / "a\nb\x1b[1m.jpg").write_bytes(b"")
    (bad,) = command("verify", root, code=1).stderr.splitlines()
    assert "class0/a\\x0ab\\x1b[1m.jpg: zero bytes" in bad


def test_in_a_project_the_way_out_is_skip(tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "project", (2, 2))
    for folder in ("src", "docs"):
        (root / folder).mkdir()
        (root / folder / "main.py").write_text("")
    failed = command("index", root, code=2)
    assert "each folder is a class: 2: 'docs', 'src'" in failed.stderr
    assert "skip=['/docs', '/src']" in failed.stderr
    assert "remove" not in failed.stderr
    assert "delete" not in failed.stderr
    assert "indexed 4 samples" in command("index", root, "--skip", "/docs", "--skip", "/src").stdout


def test_no_message_advises_to_delete_or_remove() -> None:
    """Every text of the package, and every literal of the C++ sources."""
    advice = re.compile(r"\b(remove|delete|unlink|erase)\b (the|these|this|that|them|it|those)\b")
    texts = []
    for path in (ROOT / "python").rglob("*.py"):
        tree = ast.parse(path.read_text())
        documents = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        texts += [
            (path, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documents
        ]
    for folder in ("src", "bindings"):
        for path in (ROOT / folder).rglob("*.cc"):
            if not path.stem.endswith("_test"):
                literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text())
                texts.append((path, "".join(literals)))
    assert len(texts) > 1000
    assert [(path, advice.search(text)) for path, text in texts if advice.search(text)] == []


def test_patterns_of_skip_that_match_nothing_are_warned_of(tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "data", (3, 3))
    (root / "class0" / "notes.txt").write_text("not an image")
    says = (
        r"headrace: skip: no class folder of .*data, and nothing that was read in one, matches "
        r"'\*\.wepb', '/class2' .*; check .* \* and \? are the wildcards.* a leading '/' is the "
        r"dataset's folder"
    )
    for _ in range(2):  # The index of the second time is the one that was kept.
        with pytest.warns(RuntimeWarning, match=says) as told:
            hr.open(root, skip=["*.wepb", "/class2", "*.txt", ":empty", "000.*"])
        assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hr.open(root, skip=["*.txt", ":empty", "000.*"])


def test_a_pattern_that_matches_only_in_a_folder_that_is_left_out_is_told_so(
    tmp_path: Path,
) -> None:
    root = write_numbered(tmp_path / "data", (3, 3, 1))
    os.rename(root / "class2" / "006.jpg", root / "class2" / "0.tmp.jpg")
    says = r"read in one, matches '\*\.tmp\.jpg' \(a folder that is left out is not read\); check"
    with pytest.warns(RuntimeWarning, match=says):
        hr.open(root, skip=["/class2", "*.tmp.jpg"])


@pytest.mark.parametrize("progress", [3, "x", True])
def test_progress_that_cannot_be_called_is_refused_before_anything_is_read(
    tmp_path: Path, progress: Any
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"^progress: got .*, must be a function"):
        hr.open(tmp_path / "nowhere", progress=progress)


@pytest.mark.parametrize("name", ["index", "pack"])
def test_commands_tell_of_patterns_that_match_nothing_on_stderr(tmp_path: Path, name: str) -> None:
    root = write_numbered(tmp_path / "data", (3, 3))
    target = [tmp_path / "pack"] if name == "pack" else []
    done = command(name, root, *target, "--skip", "*.wepb", "--skip", "000.*")
    assert re.fullmatch(
        r"headrace: skip: no class folder of .*, and nothing that was read in one, matches "
        r"'\*\.wepb' .*\n",
        done.stderr,
    )
    assert command("verify", root).stderr == ""


@pytest.mark.parametrize("skip", [3, b"x", [3], object()])
def test_what_is_no_pattern_is_refused(tmp_path: Path, skip: Any) -> None:
    root = write_numbered(tmp_path / "data", (3, 3))
    with pytest.raises(errors.InvalidArgumentError, match=r"skip: got .*, must be patterns: skip="):
        hr.open(root, skip=skip)


def test_stand_ins_larger_than_what_they_replace_stay_inside_a_large_budget(tmp_path: Path) -> None:
    root = tmp_path / "data" / "class0"
    root.mkdir(parents=True)
    for number in range(12):
        side = 8 + 24 * number
        noise = np.random.default_rng(number).integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(noise).save(root / f"{number:02}.png")
    for number in range(3):  # The smallest rows: their stand-ins need more room.
        (root / f"{number:02}.png").write_bytes(b"no image")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hr.Loader(
            root.parent,
            4,
            memory="256MiB",
            on_error="substitute",
            transform=sum_of_image,
            workers=0,
        ) as loader:
            for _ in range(3):
                assert sum(len(batch) for batch in loader) == 12
            assert loader.stats()["substituted"] >= 9
            assert loader.stats()["memory"]["beyond_peak"] == 0


def sum_of_image(sample: hr.Sample) -> int:
    return int(sample.image.sum())
