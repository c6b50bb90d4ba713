"""Runs the scripts of this folder with either DataLoader. Run by test_programs.py.

Usage: run_programs.py FOLDER NAME...

Imports the packages of the scripts NAME once. Then reads from stdin a line for each run, a JSON
list [LABEL, NAME, WAY, RANKS, ARGUMENTS...], and forks the ranks, each of which writes what the
script prints to FOLDER/LABEL-RANK.txt.
"""

from __future__ import annotations

import ast
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

import headrace.torch  # noqa: F401

SCRIPTS = Path(__file__).parent
LINE = "from torch.utils.data import DataLoader\n"
OURS = "from headrace.torch import DataLoader\n"
THREADS = (
    "import functools, headrace.torch; "
    "DataLoader = functools.partial(headrace.torch.DataLoader, worker_method='thread')\n"
)
PREPARED = "accelerator.prepare(train, test,"
WRAPPED = "accelerator.prepare(TrainerLoader(train, accelerator), TrainerLoader(test, accelerator),"
"""What Accelerate prepares with torch's loader, and with ours."""
WAYS = {
    "torch": (LINE, 0),
    "torch, workers": (LINE, 2),
    "direct": (OURS, 0),
    "processes": (OURS, 2),
    "threads": (THREADS, 3),
}
"""The line that makes the loader's class, and the number of workers."""
PR_SET_PDEATHSIG = 1  # If this process is killed, its ranks are, too.


class Run(NamedTuple):
    """One run of a script."""

    label: str
    name: str
    way: str
    ranks: int
    arguments: list[str]


def program(name: str, line: str) -> str:
    """A script's text with another line for the DataLoader, which is wrapped for Accelerate."""
    text = (SCRIPTS / f"{name}.py").read_text()
    assert text.count(LINE) == 1, name
    if line != LINE and PREPARED in text:
        line += "from headrace.torch import TrainerLoader\n"
        text = text.replace(PREPARED, WRAPPED)
    return text.replace(LINE, line)


def import_packages(name: str) -> None:
    """What the script imports, except what depends on the way."""
    for node in ast.walk(ast.parse(program(name, ""))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            importlib.import_module(node.module)
        elif isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)


def execute(run: Run) -> None:
    line, workers = WAYS[run.way]
    main = types.ModuleType("__main__")
    main.__file__ = str(SCRIPTS / f"{run.name}.py")
    sys.modules["__main__"] = main
    sys.argv = [main.__file__, *run.arguments, "--workers", str(workers)]
    exec(compile(program(run.name, line), main.__file__, "exec"), vars(main))


def as_rank(folder: Path, run: Run, rank: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(folder / f"{run.label}-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    if run.ranks == 1:
        execute(run)
        return
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": run.ranks}
    place["LOCAL_WORLD_SIZE"] = run.ranks
    os.environ.update({name: str(value) for name, value in place.items()})
    meeting = f"file://{folder.absolute()}/{run.label}.meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=run.ranks)
    execute(run)
    dist.destroy_process_group()


def fork(folder: Path, run: Run, rank: int) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        as_rank(folder, run, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        import_packages(name)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # The first one imports much of torch.
    gc.freeze()  # Trainers collect garbage at each end: over a second with all that was imported.
    for line in sys.stdin:
        label, name, way, ranks, *arguments = json.loads(line)
        run = Run(label, name, way, ranks, arguments)
        started = [fork(folder, run, rank) for rank in range(ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in started]
        if any(codes):
            sys.exit(f"{label}: ranks ended with {codes}")


if __name__ == "__main__":
    main()
