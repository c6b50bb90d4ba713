"""tools/package_env.py: a folder of packages is made once, whole or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import package_env

NAME = "headrace_made_here"


def write_wheel(folder: Path, version: str) -> None:
    info = f"{NAME}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{NAME}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{NAME}.py", f"VERSION = {version!r}\n")
        lines = ("Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {version}")
        wheel.writestr(f"{info}/METADATA", "\n".join(lines))
        lines = ("Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any")
        wheel.writestr(f"{info}/WHEEL", "\n".join(lines))
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where requirements are written; what is installed comes from wheels beside them."""
    monkeypatch.setattr(package_env, "ENVS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_a_folder_is_made_once_for_what_its_file_says(envs: Path) -> None:
    for version in ("1.0", "1.1"):
        write_wheel(envs, version)
        (envs / "some.txt").write_text(f"{NAME}=={version}\n")
        folder = package_env.package_env("some")
        assert (folder / f"{NAME}.py").read_text() == f"VERSION = {version!r}\n"
        (folder / "mark").touch()
        assert package_env.package_env("some") == folder
        assert (folder / "mark").exists()


def test_what_cannot_be_installed_leaves_no_folder(envs: Path) -> None:
    write_wheel(envs, "1.0")
    (envs / "some.txt").write_text(f"{NAME}==2.0\n")
    with pytest.raises(package_env.PackageEnvError, match=f"No matching distribution.*{NAME}==2.0"):
        package_env.package_env("some")
    assert [each.suffix for each in package_env.cache_folder().iterdir()] == [".lock"]


def test_an_unknown_name_is_told_the_known_ones(
    envs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (envs / "some.txt").touch()
    assert package_env.main(["other"]) == 1
    assert capsys.readouterr().err.endswith("other.txt; there are some\n")
