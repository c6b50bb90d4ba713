"""tools/messages on small projects of its own: what it finds, and what it says of each place."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import message_recorder
import pytest

import headrace as hr
from headrace import errors
from messages import command, excused
from messages.core_sites import core_sites
from messages.judge import names_object, names_way_out
from messages.python_sites import python_sites
from messages.records import Seen, named_by_tests, seen
from messages.sites import Site

ERRORS = """
class HeadraceError(Exception): ...
class InvalidArgumentError(HeadraceError, ValueError): ...
"""

CODE = """
from errors import InvalidArgumentError

class Reader:
    def open(self, path: str, size: int) -> None:
        if not path:
            raise InvalidArgumentError("opening: the path is empty; give one")
        doing = f"opening {path}"
        if size < 0:
            raise InvalidArgumentError(f"{doing}: got {size}, must be " + "0 or more")
        if size > 9:
            raise self._refused(path, "too large; split it")
        if size == 5:
            raise OSError(f"reading {path}: cut short")

    def _refused(self, path: str, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{path}: {why}")
"""

CORE = """
// return Status(StatusCode::kInternal, "in a comment");
Status Damaged(const std::string& what) {
  return Status(StatusCode::kDataLoss, what + " is damaged");
}

Status Check(const std::string& name, int size) {
  if (size == 0) return InvalidArgument("file '{}': got {} bytes, must have one", name, size);
  if (size == 1) return Damaged("the header");
  if (size == 2) {
    return Status(StatusCode::kNotFound,
                  "looking for '" + name + "': no such file; " "copy it");
  }
  std::string text = "reading ";
  text.append(name);
  if (size == 3) return Status(StatusCode::kOutOfRange, text + (size > 1 ? "one" : "two"));
  return {};
}
template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...)};
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "python" / "headrace"
    package.mkdir(parents=True)
    (package / "errors.py").write_text(ERRORS)
    (package / "reader.py").write_text(CODE)
    for folder in ("src", "bindings", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "check.cc").write_text(CORE)
    (tmp_path / "src" / "check_test.cc").write_text(CORE)
    return tmp_path


def of_python(project: Path) -> list[Site]:
    return python_sites(project / "python" / "headrace", project)


def test_places_of_python_are_found_with_their_text(project: Path) -> None:
    found = {(site.function, site.kind, site.template) for site in of_python(project)}
    of_open = "Reader.open"
    assert found == {
        (of_open, "InvalidArgumentError", "opening: the path is empty; give one"),
        (of_open, "InvalidArgumentError", "opening {}: got {}, must be 0 or more"),
        (of_open, "_refused", "{}too large; split it"),
        (of_open, "OSError", "reading {}: cut short"),
        ("Reader._refused", "InvalidArgumentError", "{}: {}"),
    }


def test_places_of_the_core_are_found_without_comments_and_tests(project: Path) -> None:
    found = {(site.function, site.kind, site.template) for site in core_sites(project)}
    assert found == {
        ("Damaged", "DataLoss", "{} is damaged"),
        ("Check", "InvalidArgument", "file '{}': got {} bytes, must have one"),
        ("Check", "Damaged", "the header"),
        ("Check", "NotFound", "looking for '{}': no such file; copy it"),
        ("Check", "OutOfRange", "{}reading {}"),
    }


def test_a_place_keeps_its_key_when_lines_are_added(project: Path) -> None:
    before = {site.key for site in of_python(project) + core_sites(project)}
    for path in (project / "python" / "headrace" / "reader.py", project / "src" / "check.cc"):
        path.write_text("\n\n\n" + path.read_text())
    assert {site.key for site in of_python(project) + core_sites(project)} == before


def recorded(project: Path, frames: list[tuple[str, int]], text: str, *printed: str) -> Seen:
    package = project / "python" / "headrace"
    digest = hashlib.sha256((package / "reader.py").read_bytes()).hexdigest()
    folder = project / "build"
    folder.mkdir()
    made = [{"frames": frames, "texts": [text]}]
    content = {"files": {"reader.py": digest}, "made": made, "printed": printed}
    (folder / "a.json").write_text(json.dumps(content))
    return seen(of_python(project), core_sites(project), folder, package)


def seen_templates(project: Path, found: Seen) -> set[str]:
    return {site.template for site in of_python(project) + core_sites(project) if found.has(site)}


def line_of(text: str) -> int:
    return CODE[: CODE.index(text)].count("\n") + 1


def test_an_error_is_known_by_its_place_and_those_that_called_it(project: Path) -> None:
    inner = line_of("return InvalidArgumentError")
    frames = [("reader.py", inner), ("reader.py", line_of("raise self._refused"))]
    found = recorded(project, frames, "a.bin: too large; split it")
    assert seen_templates(project, found) == {"{}: {}", "{}too large; split it"}


def test_an_error_of_the_core_or_of_another_process_is_known_by_its_text(project: Path) -> None:
    text = "opening a: looking for 'b': no such file; copy it"
    found = recorded(project, [], text, "error: opening x: got -1, must be 0 or more")
    assert seen_templates(project, found) == {
        "looking for '{}': no such file; copy it",
        "opening {}: got {}, must be 0 or more",
    }


@pytest.mark.parametrize(
    ("template", "text", "known"),
    [
        ("root: {}", "opening 'a': root: has a NUL character", True),
        ("root: {}", "the root: has a NUL character", False),
        ("object {}: {}", "object 7: its name is empty", True),
        ("object {}: {}", "object 7 bytes [0, 9): its name is empty", False),
        ("field {} sample {}: {}", "field 'a b' sample 3: it is long", True),
        ("{}: {}", "a: b", False),
    ],
)
def test_a_place_of_short_parts_is_known_by_all_of_them(
    template: str, text: str, known: bool
) -> None:
    assert Site("a.cc", "f", "X", template, (1, 1)).says(text) is known


def test_text_within_the_text_of_a_caller_is_judged_with_it(project: Path) -> None:
    inner = "looking for '7': no such file; copy it"
    outer = "copying 2 files: looking for '8': no such file; copy it; or go on without"
    found = recorded(project, [], inner, outer)
    (texts,) = found.texts.values()
    assert texts == [outer]


def test_a_file_that_changed_since_is_told_by_text_alone(project: Path) -> None:
    line = line_of("raise InvalidArgumentError")
    found = recorded(project, [("reader.py", line)], "opening: the path is empty; give one")
    assert not found.changed
    path = project / "python" / "headrace" / "reader.py"
    path.write_text("\n" + path.read_text())
    again = seen(of_python(project), [], project / "build", path.parent)
    assert again.changed == {"reader.py"}
    assert seen_templates(project, again) == {"opening: the path is empty; give one"}


def test_the_recorder_notes_what_the_package_and_the_core_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(message_recorder, "FOLDER", tmp_path / "messages")
    recorder = message_recorder.Recorder(pytestconfig)
    recorder.pytest_sessionstart()
    with pytest.raises(errors.NotFoundError) as of_package:
        hr.open(tmp_path / "nothing")
    (tmp_path / "damaged.hri").write_bytes(b"no index")
    with pytest.raises(errors.DataLossError, match="not an index") as of_core:
        hr.open(tmp_path / "damaged.hri")
    printed = "import sys; sys.exit('error: a.tar: cut short')"
    subprocess.run([sys.executable, "-c", printed], capture_output=True, check=False)
    recorder.pytest_sessionfinish()
    with pytest.raises(errors.NotFoundError):
        hr.open(tmp_path / "later")  # The package is as before.

    (path,) = (tmp_path / "messages").iterdir()
    noted = json.loads(path.read_text())
    texts = {text: made["frames"] for made in noted["made"] for text in made["texts"]}
    assert str(of_package.value) in texts
    files = {file for frames in texts.values() for file, _ in frames}
    assert str(of_core.value) in texts
    assert "formats/_files/paths.py" in files
    assert files == set(noted["files"])
    assert noted["printed"] == ["error: a.tar: cut short"]
    assert not any("later" in text for text in texts)


def test_text_of_tests_counts_where_nothing_is_recorded(project: Path) -> None:
    (project / "tests" / "test_a.py").write_text('MATCH = r"the path is empty; give one"')
    (project / "src" / "check_test.cc").write_text(
        'EXPECT_EQ(text, "file \'a\': got "\n "0 bytes, must have one");'
    )
    sites = of_python(project) + core_sites(project)
    named = named_by_tests(sites, project)
    assert {site.template for site in sites if site.key in named} == {
        "file '{}': got {} bytes, must have one",
        "opening: the path is empty; give one",
    }


@pytest.mark.parametrize(
    ("template", "text", "object_named", "way_out"),
    [
        ("{}: got {}, must be in [1, {}]", "a: got 0, must be in [1, 9]", True, True),
        ("fields: no field {}; it has {}", "fields: no field 'b'; it has 'a'", True, True),
        ("reading {}: cut short", "reading a.tar: cut short", True, False),
        ("reading {}: cut short; copy it again", None, True, True),
        ("not possible", "not possible", False, False),
        ("no plan; leave epochs= out", "no plan; leave epochs= out", True, True),
        ("{}: no such key; there are {}", "a.b: no such key; there are nodes", True, True),
        ("{}: there are no nodes", "a.b: there are no nodes", True, False),
        ("{}: {}", None, True, True),
    ],
)
def test_messages_are_judged_by_their_form(
    template: str, text: str | None, object_named: bool, way_out: bool
) -> None:
    site = Site("a.py", "f", "X", template, (1, 1))
    assert (names_object(site, text), names_way_out(site, text)) == (object_named, way_out)


def test_what_lacks_something_is_named_until_it_is_excused(project: Path, tmp_path: Path) -> None:
    sites = of_python(project)
    reasons = '[[excused]]\nlacks = "case"\nkind = "OSError"\nbecause = "as planned"\n'
    (tmp_path / "excused.toml").write_text(reasons)
    lacking = command.all_lacks(sites, Seen(), excused.read_excuses(tmp_path / "excused.toml"))
    said = {(lack, site.template) for (lack, _), (site, _) in lacking.items()}
    assert ("case", "opening: the path is empty; give one") in said
    assert ("case", "reading {}: cut short") not in said
    assert ("way out", "reading {}: cut short") in said

    excused.write_open(set(lacking), tmp_path / "open.txt")
    assert excused.read_open(tmp_path / "open.txt") == set(lacking)


@pytest.mark.parametrize(
    "row",
    ['lacks = "taste"\nkind = "X"\nbecause = "y"', 'lacks = "case"\nbecause = "y"'],
)
def test_an_excuse_says_what_it_excuses(tmp_path: Path, row: str) -> None:
    (tmp_path / "excused.toml").write_text(f"[[excused]]\n{row}\n")
    with pytest.raises(SystemExit, match="wrong"):
        excused.read_excuses(tmp_path / "excused.toml")


def test_the_excuses_of_this_project_are_read() -> None:
    assert excused.read_excuses()
