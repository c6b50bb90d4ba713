"""What a worker of a SampleStream says of the process that reads for it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

from headrace import errors
from headrace.formats._files.nested import Nesting
from headrace.torch import _stream

OWN = os.getpid()


def told(answer: dict[str, str] | None) -> errors.HeadraceError:
    """The worker's error if it receives this; None: the other process ends."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        if answer is None:
            there.close()
        else:
            there.send(json.dumps(answer).encode())
        with pytest.raises(errors.HeadraceError) as raised:
            _stream._asked(here, OWN, cast("Any", None))
    return raised.value


def test_a_worker_tells_what_became_of_the_process_that_reads() -> None:
    ended = told(None)
    assert isinstance(ended, errors.UnavailableError)
    assert str(ended) == (
        f"waiting for samples: process {OWN}, which reads them, has ended, or closed its loader or "
        "stream; see its output"
    )
    known = told({"error": "DataLossError", "text": "a file is damaged; copy it again"})
    assert isinstance(known, errors.DataLossError)
    assert str(known) == "a file is damaged; copy it again"
    other = told({"error": "OddError", "text": "a part has only two sides"})
    assert str(other) == "OddError: a part has only two sides"


def test_another_user_s_process_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stream, "peer", lambda connection: (5, 99999))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s"))
        reader = cast("Any", SimpleNamespace(address=str(tmp_path / "s")))
        with pytest.raises(errors.UnavailableError) as raised:
            next(_stream._dealt(reader, b""))  # Nobody listens yet.
        assert str(raised.value) == "asking for samples: the stream is closed; make another one"
        listener.listen()
        with pytest.raises(errors.UnavailableError) as raised:
            next(_stream._dealt(reader, b""))
    assert str(raised.value) == (
        "asking for samples: process 5 is user 99999's; run both as one user"
    )


def test_lists_that_do_not_fit_name_their_sample() -> None:
    nesting = Nesting(["a", "a[lengths]"])
    with pytest.raises(errors.DataLossError) as raised:
        _stream._joined(nesting, [[b"ab", b"abc"], [[2], [1]]], [40, 41])
    assert str(raised.value) == (
        "sample 41: field a: its inner lists have 1 entries, its values 3; make the index again"
    )
