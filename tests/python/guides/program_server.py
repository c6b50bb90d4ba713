"""Runs programs as new processes of Python would, without the seconds that importing torch takes.

Usage: program_server.py MODULE...: this process imports these and starts no thread. For each line
of JSON on stdin, {"ranks": [{NAME: VALUE, ...}, ...], "words": ["python", "train.py", ...],
"folder": ...}, it forks a child a rank, with these variables in its environment, and answers with
a line: for each child its exit code and what it printed on stdout and stderr; both are in "out"
where the task has "joined": true.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import runpy
import sys
import tempfile
from typing import Any, NoReturn


def main(modules: list[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # Each program's end collects garbage: not among all that was imported here.
    for line in sys.stdin:
        task = json.loads(line)
        started = []
        for variables in task["ranks"]:
            out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # closed below
            child = os.fork()
            if child == 0:
                run(task, variables, out.fileno(), (out if task.get("joined") else err).fileno())
            started.append((child, out, err))
        answers = []
        for child, *files in started:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            printed = []
            for file in files:
                file.seek(0)
                printed.append(file.read().decode())
                file.close()
            answers.append({"code": code, "out": printed[0], "err": printed[1]})
        print(json.dumps(answers), flush=True)


def run(task: dict[str, Any], variables: dict[str, str], out: int, err: int) -> NoReturn:
    """The program, in the child; its end is that of an interpreter, with its exit hooks."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    faulthandler.enable()
    os.environ.update(variables)
    os.chdir(task["folder"])
    program, *words = task["words"]
    if program == "headrace":
        sys.argv = [program, *words]
        runpy.run_module("headrace", run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        path = os.path.abspath(words[0])  # workers that are spawned import it, from another folder
        sys.path[0] = os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")
    end_groups()
    raise SystemExit(0)


def end_groups() -> None:
    """Ends torch's process groups, which a program may leave: their threads use tensors while the
    interpreter ends, and crash it now and then (https://github.com/pytorch/pytorch/pull/179291)."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
