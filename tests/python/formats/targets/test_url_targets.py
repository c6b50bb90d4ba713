"""What is written is written to local paths: a URL is refused, and what is advised works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace import errors
from headrace.formats import Builder
from headrace.pack import write_pack
from headrace.tiers import Ssd

URLS = ["s3://bucket/a/b", "gs://bucket/b", "hdfs://host:9000/b", "https://host/b", "x-y.z+1://b"]


def targets(folder: Path) -> dict[str, Callable[[str], object]]:
    """By name what writes to a path."""
    dataset = hr.open(folder)

    def with_loader(use: Callable[[hr.Loader, str], object]) -> Callable[[str], object]:
        def write(path: str) -> None:
            with hr.Loader(dataset, 4) as loader:
                use(loader, path)

        return write

    return {
        "pack": lambda path: write_pack(dataset, path),
        "index": lambda path: hr.open(folder, index=path + ".hri"),
        "builder": lambda path: Builder(path + ".hri", root="/"),
        "tier": lambda path: hr.Loader(dataset, 4, tiers=Ssd(path, "1MiB")),
        "tiers of numbers": lambda path: hr.Loader(dataset, 4, tiers=[Ssd(Path(path), "1MiB")]),
        "chart": with_loader(lambda loader, path: loader.report(path + ".png")),
        "trace": with_loader(lambda loader, path: loader.trace(path + ".json")),
        "profile": with_loader(lambda loader, path: loader.save_profile(path + ".toml")),
    }


@pytest.mark.parametrize("url", URLS)
def test_urls_are_refused(
    folder: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, write in targets(folder).items():
        if name == "tiers of numbers" and not url.startswith(("s3", "gs", "hdfs", "https")):
            continue  # pathlib makes one "/" of two: only known schemes are seen then.
        if name == "pack" and url.startswith(("s3:", "gs:", "az:")):
            continue  # A pack may be written there.
        with pytest.raises(
            errors.InvalidArgumentError, match="this is a URL, and headrace writes to"
        ):
            write(url)
    assert sorted(os.listdir(tmp_path)) == ["cache", "images"]


def test_names_with_a_colon_are_paths(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hr.open(folder, index="a:b.hri")
    (tmp_path / "x:").mkdir()
    hr.open(folder, index="x:/b.hri")
    hr.open(folder, index=str(tmp_path / "x:" / "c.hri"))
    assert sorted(os.listdir("x:")) == ["b.hri", "c.hri"]


def test_a_file_url_names_the_path(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(folder, index=f"file://{tmp_path}/a.hri")
    (path,) = re.findall(r"write the path alone: '(.*)'$", str(caught.value))
    assert path == f"{tmp_path}/a.hri"
    hr.open(folder, index=path)


def test_the_command_of_pack_works_as_it_stands(folder: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "headrace", "pack", folder, "hdfs://host/my pack"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    (command,) = re.findall(r"`(.*?)`", done.stderr.replace("\n", " "))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "headrace").write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
    (bin_folder / "headrace").chmod(0o755)
    env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=env, capture_output=True)
    assert len(hr.open(tmp_path / "my pack")) == len(hr.open(folder))
