"""Runs programs as new processes of Python would, without the seconds that importing torch takes.

This process has imported what they need and started no thread. For each line of JSON on stdin,
{"ranks": [{NAME: VALUE, ...}, ...], "words": ["python", "train.py", ...], "folder": ...}, it forks
a child a rank, with these variables in its environment, and answers with a line: for each child
its exit code and what it printed on stdout and stderr.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import tempfile
from typing import Any, NoReturn

import numpy as np  # noqa: F401
import torch._dynamo  # as the first optimizer does
import torch.distributed
import torch.nn.parallel  # noqa: F401
from PIL import Image  # noqa: F401

import headrace.cli
import headrace.torch  # noqa: F401


def main() -> None:
    gc.freeze()  # Each program's end collects garbage: not among all that was imported here.
    for line in sys.stdin:
        task = json.loads(line)
        started = []
        for variables in task["ranks"]:
            output = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
            child = os.fork()
            if child == 0:
                run(task, variables, output.fileno())
            started.append((child, output))
        answers = []
        for child, output in started:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            answers.append({"code": code, "out": output.read().decode()})
            output.close()
        print(json.dumps(answers), flush=True)


def run(task: dict[str, Any], variables: dict[str, str], output: int) -> NoReturn:
    """The program, in the child; its end is that of an interpreter, with its exit hooks."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(variables)
    os.chdir(task["folder"])
    program, *words = task["words"]
    if program == "headrace":
        sys.argv = [program, *words]
        runpy.run_module("headrace", run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = task["folder"]
        path = os.path.abspath(words[0])  # workers that are spawned import it, from another folder
        runpy.run_path(path, run_name="__main__")
    raise SystemExit(0)


if __name__ == "__main__":
    main()
