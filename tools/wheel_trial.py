"""Tries an installed headrace as a user has it: run by a Python that has only the wheel.

Usage: python -I -W error wheel_trial.py DATA README     in an empty folder, by build_wheels.py

DATA has `images`, a folder of class folders, and `pixels.npy`, what every sample of it decodes to.
Prints a line for each thing that held; ends with a traceback at the first that did not.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr

BUNDLED = ("libjpeg", "liburing", "libsndfile", "libspng", "libwebp", "libzstd")
NODE = "headrace-node"
_COMMAND_S = 120


def run(*arguments: object) -> str:
    """What a headrace command prints, called as users call it."""
    command = [str(Path(sys.executable).with_name("headrace")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


# A node of two, each with a node process: what one keeps it gives the other. Arguments: the data.
NODE_PROGRAM = """
import os, sys
import headrace as hr
addresses = os.environ["ADDRESSES"].split(",")
rank = int(os.environ["RANK"])
with hr.Loader(
    sys.argv[1], 4, transform=hr.image.train(8), output="numpy", tiers=[hr.tiers.Ram("16MiB")],
    job=hr.Job(
        rank=rank,
        world_size=2,
        node=hr.Node(local_rank=0, local_world_size=1, addresses=addresses),
    ),
) as loader:
    for _ in range(2):
        assert len(list(loader)) == len(loader)
    print(loader.stats()["nodes"]["received"])
"""


def inverted(sample: Any) -> dict[str, Any]:
    return {"image": 255 - sample.image, "label": int(sample.label)}


class Trial:
    """The data, and the checks of a loader over it."""

    def __init__(self, data: Path, readme: Path) -> None:
        self.images = data / "images"
        self.pixels = np.load(data / "pixels.npy")
        self.readme = readme
        height, width = self.pixels.shape[1:3]
        self.decode = hr.image.resize((height, width), dtype="uint8", layout="NHWC", exact=True)

    def check(self, batches: Iterable[Any], pixels: Any) -> None:
        """Each sample once, with its own pixels and its own label."""
        seen: list[int] = []
        for batch in batches:
            fields = batch if isinstance(batch, dict) else batch._asdict()
            ids = np.asarray(fields["sample_id"])
            assert np.array_equal(np.asarray(fields["image"]), pixels[ids]), ids
            assert np.array_equal(np.asarray(fields["label"]), ids * 2 // len(pixels)), ids
            seen += ids.tolist()
        assert sorted(seen) == list(range(len(pixels))), seen

    def loader(self, source: Path, transform: Any, **options: Any) -> Any:
        return hr.Loader(
            source, 7, transform=transform, output=hr.Output("numpy", ids=True), **options
        )

    def surroundings(self) -> str:
        assert Path(hr.__file__).is_relative_to(sys.prefix), hr.__file__
        if "HEADRACE_BARE" not in os.environ:
            return "NOT bare: this machine lends no mount namespace; PATH has no compiler"
        for compiler in ("cc", "g++", "clang++"):
            try:
                subprocess.run([compiler, "--version"], capture_output=True, timeout=_COMMAND_S)
            except (FileNotFoundError, PermissionError):
                continue
            raise AssertionError(f"{compiler} runs")
        assert not Path("/usr/include/stdio.h").exists()
        return f"bare: no compiler runs, no header, {', '.join(BUNDLED)} of the system hidden"

    def commands(self) -> str:
        version = metadata.version("headrace")
        assert hr.__version__ == version
        assert run("--version").startswith(f"headrace {version} (Python 3.")
        pages = [line.split()[0] for line in run("docs").splitlines()]
        for page in pages:
            assert run("docs", page, "--raw").startswith("# "), page
        return f"headrace {version}: {len(pages)} pages"

    def folder(self) -> str:
        run("index", self.images, "-o", "images.hri")
        run("verify", "images.hri")
        for order in ("exact", "batch", "epoch"):
            with self.loader(self.images, self.decode, order=order) as loader:
                self.check(loader, self.pixels)
        return f"{len(self.pixels)} PNG and JPEG images decoded pixel for pixel, in 3 orders"

    def pack(self) -> str:
        run("pack", self.images, "packed")
        run("verify", "packed")
        dataset = hr.open("packed")
        names = [int(dataset.read(i)["label"]) for i in range(len(dataset))]
        assert sorted(names) == [i * 2 // len(names) for i in range(len(names))]
        seen = []
        with self.loader(Path("packed"), self.decode) as loader:
            for batch in loader:
                seen += [image.tobytes() for image in np.asarray(batch.image)]
        assert sorted(seen) == sorted(image.tobytes() for image in self.pixels)
        return "written, verified, read: the same pixels"

    def workers(self) -> str:
        with self.loader(self.images, (self.decode, inverted), workers=2) as loader:
            self.check(loader, 255 - self.pixels)
        return "2 processes ran a Python transform"

    def process(self) -> str:
        with self.loader(self.images, self.decode, job=hr.Job(node=hr.Node())) as loader:
            batches = iter(loader)
            first = next(batches)
            (node,) = children(NODE)
            for pid in (os.getpid(), node):
                check_libraries(pid)
            self.check([first, *batches], self.pixels)
        assert children(NODE) == []
        return f"{NODE} served it with the wheel's own libraries, and ended"

    def nodes(self) -> str:
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        addresses = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in held)
        for each in held:
            each.close()
        ranks = [
            subprocess.Popen(
                [sys.executable, "-I", "-W", "error", "-c", NODE_PROGRAM, self.images],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ
                | {"RANK": str(rank), "ADDRESSES": addresses, "HEADRACE_TOKEN": "of a trial"},
            )
            for rank in range(2)
        ]
        try:
            received = [int(rank.communicate(timeout=_COMMAND_S)[0] or "0") for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert all(rank.returncode == 0 for rank in ranks), [rank.returncode for rank in ranks]
        assert sum(received) > 0, received
        return f"two gave each other {sum(received)} samples"

    def readme_code(self) -> str:
        code = "\n".join(re.findall(r"```python\n(.*?)```", self.readme.read_text(), re.DOTALL))
        made_here = {
            '"data/images"': repr(str(self.images)),
            "range(90)": "range(2)",
        }
        for text, here in made_here.items():
            assert text in code, text
            code = code.replace(text, here)
        shapes: list[tuple[int, ...]] = []
        exec(
            compile(code, "README.md", "exec"), {"train": lambda *row: shapes.append(row[0].shape)}
        )
        assert sum(shape[0] for shape in shapes) == 2 * len(self.pixels), shapes
        assert {shape[1:] for shape in shapes} == {(3, 224, 224)}, shapes
        return "ran, with " + ", ".join(f"{text} as {here}" for text, here in made_here.items())


def children(name: str) -> list[int]:
    """The processes that this one started, of the program `name`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            program = os.readlink(entry / "exe")
        except OSError:
            continue  # It has ended.
        if parent == os.getpid() and Path(program).name == name:
            found.append(int(entry.name))
    return found


def check_libraries(pid: int) -> None:
    """Of the bundled libraries those of the wheel are mapped, and no others."""
    libraries = Path(hr.__file__).parent.parent / "headrace.libs"
    mapped = {line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    for name in BUNDLED:
        ours = [path for path in mapped if Path(path).name.startswith(name)]
        # Pillow, if it is there, has a libjpeg of its own.
        ours = [path for path in ours if "pillow.libs" not in path]
        assert len(ours) == 1, (name, ours)
        assert Path(ours[0]).parent == libraries, (ours, libraries)


def main(data: Path, readme: Path) -> None:
    trial = Trial(data, readme)
    checks: list[Callable[[], str]] = [
        trial.surroundings,
        trial.commands,
        trial.folder,
        trial.pack,
        trial.workers,
        trial.process,
        trial.nodes,
        trial.readme_code,
    ]
    for check in checks:
        print(f"  {check.__name__}: {check()}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
