"""What `make wheel` relies on, without building one: errors of CMake, licences, tags, contents."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import build_wheels
import wheel_contents
import wheel_trial

ROOT = Path(__file__).resolve().parent.parent
HEADERS = f"/usr/include;/usr/include/{platform.machine()}-linux-gnu"
WITHOUT_HEADERS = ("-D", f"CMAKE_IGNORE_PATH={HEADERS}")


def configure(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Of the repository, into an empty folder."""
    command = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(folder)]
    command += ["-D", "HEADRACE_TESTS=OFF", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, env={**os.environ, **env}
    )


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The only error of a configure step, without CMake's line breaks."""
    assert done.returncode != 0
    assert done.stderr.count("CMake Error") == 1, done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("CMAKE_SYSTEM_NAME=FreeBSD", "CMAKE_SYSTEM_PROCESSOR=x86_64"), "for FreeBSD, x86_64, 64"),
        (("CMAKE_SYSTEM_NAME=Linux", "CMAKE_SYSTEM_PROCESSOR=riscv64"), "for Linux, riscv64, 64"),
        (("HEADRACE_GLIBC=OFF",), "for Linux without glibc, "),
    ],
)
def test_another_platform_is_told_which_there_are(
    arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    error = error_of(configure(tmp_path, *(f"-D{each}" for each in arguments)))
    assert f"configuring headrace {named}" in error
    assert "64-bit Linux with glibc only, on x86_64 (tested) and aarch64" in error


def test_missing_libraries_are_named_together_with_the_line_that_installs_them(
    tmp_path: Path,
) -> None:
    error = error_of(configure(tmp_path, *WITHOUT_HEADERS, PKG_CONFIG_LIBDIR=str(tmp_path)))
    assert (
        "not found: libjpeg, libtiff 4.5, libspng, libwebp, libsndfile, libzstd, zlib, liburing, "
        "xxhash.h, fmt/core.h, protobuf, gRPC. On"
    ) in error
    apt = re.search(r"apt install [a-z0-9+ -]+", error)
    assert apt is not None
    of_page = re.search(r"apt install (.*)", (ROOT / "docs/install.md").read_text())
    assert of_page is not None
    assert set(apt[0].split()[2:]) - {"--"} <= set(of_page[1].split())


def test_a_library_that_is_missing_alone_is_named_alone(tmp_path: Path) -> None:
    # Of those that pkg-config finds.
    no_spng = configure(tmp_path / "spng", PKG_CONFIG_LIBDIR=str(tmp_path))
    assert "not found: libspng, libwebp, libsndfile, libzstd. On Debian" in error_of(no_spng)
    no_jpeg = configure(tmp_path / "jpeg", "-D", "CMAKE_DISABLE_FIND_PACKAGE_JPEG=ON")
    assert "not found: libjpeg. On Debian" in error_of(no_jpeg)


def test_the_licence_of_everything_that_a_wheel_carries_is_installed(tmp_path: Path) -> None:
    python = ("-D", "HEADRACE_PYTHON=ON", "-D", f"Python_EXECUTABLE={sys.executable}")
    configured = configure(tmp_path / "build", *python, "-D", "HEADRACE_TIFF=OFF")
    assert configured.returncode == 0, configured.stderr
    install = ["cmake", "--install", tmp_path / "build", "--component", "licenses"]
    subprocess.run([*install, "--prefix", tmp_path], check=True, capture_output=True, timeout=280)
    texts = {path.stem: path.read_text() for path in tmp_path.glob("share/headrace/licenses/*")}
    assert texts.keys() == {*wheel_contents.BUNDLED.values(), *wheel_contents.COMPILED_IN}
    for library, text in texts.items():
        assert "copyright" in text.lower(), library
    assert texts["robin-map"].startswith("/**\n * MIT License")
    assert texts["robin-map"].endswith("*/\n")


def test_a_build_without_tiff_needs_no_libtiff_and_wheels_are_such(tmp_path: Path) -> None:
    gone = ("-D", "CMAKE_DISABLE_FIND_PACKAGE_TIFF=ON")
    assert "not found: libtiff 4.5. On" in error_of(configure(tmp_path / "with", *gone))
    done = configure(tmp_path / "without", *gone, "-D", "HEADRACE_TIFF=OFF")
    assert done.returncode == 0, done.stderr
    assert '"cmake.define.HEADRACE_TIFF=OFF"' in (ROOT / "tools/build_wheels.py").read_text()
    assert not {"libtiff", "libjbig"} & wheel_contents.BUNDLED.keys()


@pytest.mark.parametrize(
    ("version", "tag"), [("3.11", "cp311-cp311"), ("3.12", "cp312-abi3"), ("3.13", "cp312-abi3")]
)
def test_pyproject_asks_for_one_wheel_for_3_12_and_later(version: str, tag: str) -> None:
    code = f"""
import sys, tomllib
from collections import namedtuple
major, minor = map(int, {version!r}.split("."))
settings = tomllib.load(open("pyproject.toml", "rb"))["tool"]["scikit-build"]["wheel"]
from packaging import tags
found = next(t for t in tags.sys_tags() if "linux_" in t.platform and "many" not in t.platform)
name = f"cp{{major}}{{minor}}"
tags.sys_tags = lambda: iter([tags.Tag(name, name, found.platform)])
sys.version_info = namedtuple("Version", "major minor micro releaselevel serial")(
    major, minor, 0, "final", 0
)
from scikit_build_core.builder.wheel_tag import WheelTag
best = WheelTag.compute_best([], settings["py-api"])
print(best.pyver, best.abi, sep="-")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.stdout.strip() == tag, done.stderr


def test_wheels_are_built_with_what_the_developers_builds_have() -> None:
    def pins(path: Path) -> dict[str, str]:
        lines = path.read_text().splitlines()
        return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")

    own, all_ = pins(ROOT / "tools/envs/wheel.txt"), pins(ROOT / "tools/requirements.txt")
    for name in ("nanobind", "scikit_build_core", "cmake", "ninja"):
        assert own[name] == all_[name], name


@pytest.mark.parametrize("namespaces", [True, False])
def test_the_bare_machine_runs_no_compiler_and_leaves_this_one_as_it_is(
    namespaces: bool, tmp_path: Path
) -> None:
    """Without namespaces PATH has only the folder of the shell: no cc, and no ls either."""
    hidden, programs, path = tmp_path / "hidden", tmp_path / "programs", os.environ["PATH"]
    for folder in (hidden, programs):
        folder.mkdir()
    (hidden / "file").touch()
    (programs / "sh").symlink_to("/bin/sh")
    if not namespaces:
        (tmp_path / "unshare").symlink_to("/bin/false")
        path = f"{tmp_path}:{path}"
    script = f"command -v cc || echo no cc; echo {hidden}/* /usr/include/*"
    command = [ROOT / "tools" / "bare_machine.sh", programs / "sh", "-c", script]
    env = {**os.environ, "HIDE": str(hidden), "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=env)
    said = done.stdout.splitlines()
    if said[0].startswith("bare_machine: no mount namespace here"):
        assert said[1] == "no cc"
    else:
        assert namespaces, done.stderr
        assert said == ["no cc", f"{hidden}/* /usr/include/*"], done.stderr
    assert (hidden / "file").exists()
    assert Path("/usr/include/stdio.h").exists()


def test_the_readme_s_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    build_wheels.make_data(tmp_path)
    trial = wheel_trial.Trial(tmp_path, ROOT / "README.md")
    assert trial.readme_code().startswith("ran, with ")
    assert " of the time" in capsys.readouterr().out  # the verdict, which it prints


def test_a_stage_that_leaves_no_finished_wheel_ends_with_the_seconds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_wheels, "DIST", tmp_path)
    build_wheels.print_table({"build": 12.3})
    assert capsys.readouterr().out.splitlines()[1:] == ["== wheels in dist/", "seconds: build 12"]


INFO = "headrace-0.1.0.dist-info/"


def wheel_of(folder: Path, *, without: str = "", more: str = "", node_mode: int = 0o755) -> Path:
    """A wheel of empty files."""
    names = {path.relative_to(ROOT / "python").as_posix() for path in python_files()}
    docs = ROOT / "docs"
    pages = [*docs.glob("*.md"), *docs.glob("formats/*.md"), *docs.glob("guides/*.md")]
    names |= {f"headrace/_docs/{path.relative_to(docs).as_posix()}" for path in pages}
    names |= {"headrace/_core.abi3.so", f"{INFO}METADATA", f"{INFO}licenses/LICENSE"}
    names |= {f"headrace.libs/{name}-0123abcd.so.1" for name in wheel_contents.BUNDLED}
    texts = (*wheel_contents.BUNDLED.values(), *wheel_contents.COMPILED_IN)
    names |= {f"{INFO}licenses/third_party/{text}.txt" for text in texts}
    path = folder / "headrace-0.1.0-cp312-abi3-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (names | {more}) - {without, ""}:
            archive.writestr(name, "")
        archive.writestr("headrace.libs/", "")
        if without != "headrace/headrace-node":
            node = zipfile.ZipInfo("headrace/headrace-node")
            node.external_attr = node_mode << 16
            archive.writestr(node, "")
    return path


def python_files() -> list[Path]:
    package = ROOT / "python" / "headrace"
    return [path for path in package.rglob("*") if path.suffix in (".py", ".pyi", ".typed")]


def test_a_wheel_with_all_its_parts_has_no_faults(tmp_path: Path) -> None:
    path = wheel_of(tmp_path)
    assert wheel_contents.faults(path, ROOT) == []
    assert wheel_contents.summary(path).endswith(" MB, manylinux_2_34_x86_64")


@pytest.mark.parametrize(
    "name",
    [
        "headrace/py.typed",
        "headrace/_core.pyi",
        "headrace/cli/__init__.py",
        "headrace/_docs/loader.md",
        "headrace/headrace-node",
        f"{INFO}licenses/third_party/liburing.txt",
    ],
)
def test_a_part_that_a_wheel_lacks_is_named(name: str, tmp_path: Path) -> None:
    faults = wheel_contents.faults(wheel_of(tmp_path, without=name), ROOT)
    assert f"without {name}" in faults


def test_an_extension_library_and_mode_that_are_wrong_are_named(tmp_path: Path) -> None:
    faults = wheel_contents.faults(wheel_of(tmp_path, without="headrace/_core.abi3.so"), ROOT)
    assert any("_core" in fault for fault in faults)
    missing = "headrace.libs/libjpeg-0123abcd.so.1"
    assert "without libjpeg.so" in wheel_contents.faults(wheel_of(tmp_path, without=missing), ROOT)
    unknown = wheel_contents.faults(wheel_of(tmp_path, more="headrace.libs/libx-1.so.2"), ROOT)
    assert unknown == ["with libx.so, whose licence nobody names"]
    plain = wheel_contents.faults(wheel_of(tmp_path, node_mode=0o644), ROOT)
    assert plain == ["headrace/headrace-node is not executable"]


@pytest.mark.parametrize("name", ["tests/conftest.py", "demo/demo.py", "headrace/base/hash.h"])
def test_what_does_not_belong_into_a_wheel_is_named(name: str, tmp_path: Path) -> None:
    faults = wheel_contents.faults(wheel_of(tmp_path, more=name), ROOT)
    assert any(name in fault for fault in faults)


def test_a_wheel_above_the_limit_is_told_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wheel_of(tmp_path)
    monkeypatch.setattr(wheel_contents, "BYTES_MAX", path.stat().st_size)
    size = path.stat().st_size
    assert wheel_contents.faults(path, ROOT) == [f"has {size} bytes, limit {size}"]
