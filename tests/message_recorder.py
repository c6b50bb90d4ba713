"""Notes each error that headrace makes while tests run: for `python tools/messages`.

The classes of errors are wrapped here, in the process of the tests; the package knows nothing of
it. An error of another process is known by its text: where it is raised again, or where the process
that a test ran printed it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "build" / "messages"
FRAMES_MAX = 4  # of headrace, the innermost first: a function that makes errors is called by others
TEXTS_MAX = 200  # of each place: the core says all it says where it is called
TEXT_MAX = 2000  # characters
_PRINTED_MAX = 500_000  # characters of a process's output that are looked at

Place = tuple[tuple[str, int], ...]  # files of headrace with their lines


class Recorder:
    """A plugin; writes one file when the session ends."""

    def __init__(self, config: pytest.Config) -> None:
        run = f"{config.getoption('markexpr')} {config.args}"
        of_run = hashlib.sha256(run.encode()).hexdigest()[:8]
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._path = FOLDER / f"{of_run}-{worker}.json"
        self._texts: dict[Place, list[str]] = {}
        self._printed: set[str] = set()
        self._undo: list[tuple[Any, str, Any]] = []
        self._root = ""

    def pytest_sessionstart(self) -> None:
        try:
            from headrace import errors
        except ImportError:  # the tests of tools need none
            return
        self._root = str(Path(errors.__file__).parent) + os.sep
        self._watch_class(errors.HeadraceError)
        self._watch_processes()

    def pytest_sessionfinish(self) -> None:
        for holder, name, before in self._undo:
            setattr(holder, name, before) if before is not None else delattr(holder, name)
        if not self._texts and not self._printed:
            return
        files = {file for place in self._texts for file, _ in place}
        digests = {
            file: hashlib.sha256(Path(self._root, file).read_bytes()).hexdigest()
            for file in sorted(files)
        }
        made = [{"frames": place, "texts": texts} for place, texts in self._texts.items()]
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._path.write_text(
            json.dumps({"files": digests, "made": made, "printed": sorted(self._printed)}, indent=0)
        )

    def _watch_class(self, base: Any) -> None:
        def noting_init(error: Any, *args: Any, **kwargs: Any) -> None:
            super(base, error).__init__(*args, **kwargs)
            self._note(error, sys._getframe(1))

        self._undo.append((base, "__init__", base.__dict__.get("__init__")))
        base.__init__ = noting_init

    def _note(self, error: BaseException, frame: Any) -> None:
        place = []
        while frame is not None and len(place) < FRAMES_MAX:
            file = frame.f_code.co_filename
            if file.startswith(self._root) and not file.endswith("errors.py"):
                place.append((file.removeprefix(self._root), frame.f_lineno))
            frame = frame.f_back
        texts = self._texts.setdefault(tuple(place), [])
        text = str(error)[:TEXT_MAX]
        if len(texts) < TEXTS_MAX and text not in texts:
            texts.append(text)

    def _watch_processes(self) -> None:
        before = subprocess.Popen.communicate

        def noting_communicate(process: Any, *args: Any, **kwargs: Any) -> Any:
            told = before(process, *args, **kwargs)
            for part in told:
                if part and len(part) < _PRINTED_MAX:
                    text = part.decode(errors="replace") if isinstance(part, bytes) else part
                    self._printed.update(
                        line[:TEXT_MAX] for line in text.splitlines() if "rror" in line
                    )
            return told

        self._undo.append((subprocess.Popen, "communicate", before))
        subprocess.Popen.communicate = noting_communicate  # type: ignore[method-assign]
