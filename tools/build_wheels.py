"""Builds, repairs, audits and tests the binary wheels: `make wheel`. They come to lie in dist/.

Usage: python tools/build_wheels.py [--plat TAG] [--python PATH]... [STAGE ...]

Stages: build, repair, audit, test; all without arguments. Needs CPython 3.11, 3.12 and 3.13: those
of PATH or pyenv, or those named by --python. The tools (auditwheel, abi3audit, ...) have an
environment of their own: tools/envs/wheel.txt. CONTRIBUTING.md says what decides a wheel's tag.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

import wheel_contents

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
RAW = ROOT / "build" / "wheel"
DIST = ROOT / "dist"

PLATFORM = f"manylinux_2_34_{platform.machine()}"
# libstdc++ is linked statically: GLIBCXX_3.4.30 would make the tag 2_35. What of it is never called
# is dropped: std::random_device, which calls arc4random, would make the tag 2_36.
LINK_FLAGS = "-static-libstdc++ -Wl,--gc-sections"
# Of the package's own tests those that need no torch: the compiled part from all sides.
SUITE = ("codec_vs_pillow", "errors", "index", "loader_order", "node", "pack", "plan", "tiers")
SUITE_PACKAGES = ("pytest", "pytest-timeout", "hypothesis", "pillow")
DEMO_PYTHON = "3.11"  # One is enough: torch is large.
DEMO_PACKAGES = ("torch", "matplotlib", "pillow")
IMAGES, SIDE = 45, 24
LEFTOVERS = shutil.ignore_patterns("out", "__pycache__")
_COMMAND_S = 1800


@dataclass
class Wheel:
    """One that is built; the audit and the tests fill in what they found."""

    tag: str  # Python's and the ABI's
    built_by: str
    runs_on: tuple[str, ...]
    tested: list[str] = field(default_factory=list)

    @property
    def stem(self) -> str:
        return f"headrace-*-{self.tag}-"

    def raw(self) -> Path:
        return _only(RAW, f"{self.stem}linux_*.whl")

    def repaired(self) -> Path:
        return _only(DIST, f"{self.stem}manylinux*.whl")


WHEELS = (
    Wheel("cp311-cp311", "3.11", ("3.11",)),
    Wheel("cp312-abi3", "3.12", ("3.12", "3.13")),
)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"wheel: {len(found)} files {folder / pattern}; run all stages")
    return found[0]


def run(*command: object, env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Ends the program if the command fails; its output is part of the log."""
    line = [str(each) for each in command]
    sys.stdout.flush()
    done = subprocess.run(line, env={**os.environ, **(env or {})}, cwd=cwd, timeout=_COMMAND_S)
    if done.returncode != 0:
        raise SystemExit(f"wheel: {' '.join(line)}: exit {done.returncode}")


def version_of(python: Path | str) -> str | None:
    """As in "3.12"; None if it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_pythons(given: list[str]) -> dict[str, Path]:
    """By version. A program of PATH may be one that only says how to choose another."""
    wanted = sorted({version for wheel in WHEELS for version in wheel.runs_on})
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates: list[Path | str] = [*given, *(f"python{version}" for version in wanted)]
    candidates += sorted(pyenv.glob("3.*/bin/python"))
    found: dict[str, Path] = {}
    for candidate in candidates:
        path = shutil.which(candidate)
        version = version_of(path) if path else None
        if path and version:
            found.setdefault(version, Path(path))
    missing = [version for version in wanted if version not in found]
    if missing:
        raise SystemExit(
            f"wheel: no CPython {', '.join(missing)} on PATH or in {pyenv}; name one with "
            "--python /path/to/python, or WHEEL_PYTHONS='/path /path' make wheel"
        )
    return {version: found[version] for version in wanted}


def tools_env(python: Path) -> dict[str, str]:
    """The environment in which a Python sees the packages of tools/envs/wheel.txt."""
    made = subprocess.run(
        [python, TOOLS / "package_env.py", "wheel"],
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
    )
    if made.returncode != 0:
        raise SystemExit(f"wheel: {made.stderr.strip()}")
    folder = made.stdout.strip()
    return {"PYTHONPATH": folder, "PATH": f"{folder}/bin:{os.environ['PATH']}"}


@dataclass
class Job:
    """What the stages have in common."""

    pythons: dict[str, Path]
    platform: str

    def build(self, wheel: Wheel) -> None:
        python = self.pythons[wheel.built_by]
        # As deep as build/python: so ccache knows what `make build` has compiled.
        build = ROOT / "build" / f"wheel-{wheel.tag}"
        for old in RAW.glob(f"{wheel.stem}*.whl"):
            old.unlink()
        env = tools_env(python) | {
            "LDFLAGS": LINK_FLAGS,
            "CCACHE_BASEDIR": str(ROOT),
            "CCACHE_NOHASHDIR": "true",
            "CMAKE_C_COMPILER_LAUNCHER": "ccache",
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get(
                "CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count())
            ),
        }
        run(
            *(python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
            *("--no-build-isolation", "--no-deps", "--wheel-dir", RAW),
            *("-C", f"build-dir={build}", "-C", "install.components=python;licenses"),
            # Debian's libtiff needs libjbig, whose licence is the GPL.
            *("-C", "cmake.define.HEADRACE_TIFF=OFF"),
            *("-C", "cmake.define.HEADRACE_GRPC_STATIC=ON"),
            ROOT,
            env=env,
        )

    def repair(self, wheel: Wheel) -> None:
        for old in DIST.glob(f"{wheel.stem}*.whl"):
            old.unlink()
        self._tool(
            *("auditwheel", "repair", "--plat", self.platform, "--wheel-dir", DIST, wheel.raw())
        )

    def audit(self, wheel: Wheel) -> None:
        path = wheel.repaired()
        self._tool("auditwheel", "show", path)
        if wheel.tag.endswith("abi3"):
            self._tool("abi3audit", "--strict", "--summary", path)
        faults = wheel_contents.faults(path, ROOT)
        if faults:
            raise SystemExit(f"wheel: {path.name}:\n  " + "\n  ".join(faults))
        print(f"{path.name}: contents as they should be, {wheel_contents.summary(path)}")

    def test(self, wheel: Wheel) -> None:
        for version in wheel.runs_on:
            print(f"Python {version}: {wheel.repaired().name} in an empty environment")
            # Outside the repository, which is hidden during the test.
            with tempfile.TemporaryDirectory(prefix=f"headrace-wheel-{version}-") as folder:
                bare = BareEnvironment(Path(folder), self.pythons[version])
                bare.install(f"{wheel.repaired()}[pack]")
                try_wheel(bare)
                run_suite(bare)
                if version == DEMO_PYTHON:
                    run_demo(bare)
            wheel.tested.append(f"{version} (demo too)" if version == DEMO_PYTHON else version)

    def _tool(self, *command: object) -> None:
        run(*command, env=tools_env(self.pythons[WHEELS[0].built_by]))


class BareEnvironment:
    """A folder with a virtual environment whose Python sees no compiler, header or repository."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self._python = folder / "venv" / "bin" / "python"
        code = "import sysconfig; print(sysconfig.get_path('include'))"
        headers = subprocess.check_output([python, "-c", code], text=True).strip()
        self._env = {"HIDE": f"{headers} {ROOT}", "XDG_CACHE_HOME": str(folder / "cache")}
        run(python, "-m", "venv", folder / "venv")

    def install(self, *packages: str) -> None:
        run(
            *(self._python, "-m", "pip", "install", "--quiet", "--only-binary=:all:"),
            *("--disable-pip-version-check", "-c", TOOLS / "requirements.txt"),
            *("-c", TOOLS / "requirements-tests.txt", *packages),
        )

    def copy(self, *names: str) -> None:
        """Files and folders of the repository, with their paths."""
        for name in names:
            source, target = ROOT / name, self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=LEFTOVERS, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)

    def run(self, *arguments: object) -> None:
        """Its Python, in its folder."""
        command = (TOOLS / "bare_machine.sh", self._python, *arguments)
        run(*command, env=self._env, cwd=self.folder)


def try_wheel(bare: BareEnvironment) -> None:
    make_data(bare.folder / "data")
    bare.copy("README.md", "tools/wheel_trial.py")
    bare.run("-I", "-W", "error", "tools/wheel_trial.py", "data", "README.md")


def run_suite(bare: BareEnvironment) -> None:
    bare.install(*SUITE_PACKAGES)
    bare.copy("tests", "docs", "tools", "pyproject.toml")
    bare.run("-m", "pytest", "-q", *(f"tests/python/test_{name}.py" for name in SUITE))


def run_demo(bare: BareEnvironment) -> None:
    bare.install(*DEMO_PACKAGES)
    bare.copy("demo")
    bare.run("demo/demo.py", "--quick", "--out", "out")


def make_data(folder: Path) -> None:
    """Two classes of noise, PNG and JPEG in turn, and what Pillow decodes them to."""
    generator = np.random.Generator(np.random.PCG64(1))
    pixels = []
    for number in range(IMAGES):
        path = folder / "images" / f"class{number * 2 // IMAGES}" / f"{number:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path = path.with_suffix((".png", ".jpg")[number % 2])
        noise = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        with Image.open(path) as image:
            pixels.append(np.asarray(image.convert("RGB")))
    np.save(folder / "pixels.npy", np.stack(pixels))


def print_table(seconds: dict[str, float]) -> None:
    print("\n== wheels in dist/")
    for wheel in WHEELS:
        tested = ", ".join(wheel.tested) or "none in this run"
        for path in DIST.glob(f"{wheel.stem}manylinux*.whl"):
            print(f"{path.name}\n    {wheel_contents.summary(path)}; tested on CPython: {tested}")
    print("seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in seconds.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--plat", default=PLATFORM, help=f"platform tag (default {PLATFORM})")
    parser.add_argument("--python", action="append", default=[], help="a CPython to use")
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    given = parser.parse_args()
    pythons = given.python + os.environ.get("WHEEL_PYTHONS", "").split()
    job = Job(find_pythons(pythons), given.plat)
    stages: dict[str, Callable[[Wheel], None]] = {
        "build": job.build,
        "repair": job.repair,
        "audit": job.audit,
        "test": job.test,
    }
    unknown = set(given.stages) - set(stages)
    if unknown:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(stages)}")
    seconds = {}
    for name, stage in stages.items():
        if given.stages and name not in given.stages:
            continue
        print(f"\n== {name}")
        began = time.monotonic()
        for wheel in WHEELS:
            stage(wheel)
        seconds[name] = time.monotonic() - began
    print_table(seconds)


if __name__ == "__main__":
    main()
