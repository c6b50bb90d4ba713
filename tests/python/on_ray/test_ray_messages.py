"""What headrace.ray says where a cluster cannot do what is asked, with a stand-in for Ray."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace import _core, errors
from headrace.pack._work import PackWork
from headrace.ray import NodeActors, _nodes, _packing, node_process, start_nodes
from headrace.ray._packing import writing_tasks
from headrace.ray._tasks import _result

HOST = socket.gethostname()


class RayError(Exception): ...


class GetTimeoutError(RayError): ...


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__("the work failed")
        self.cause = cause


def failing(error: Exception) -> Callable[..., Any]:
    def get(*arguments: Any, **named: Any) -> Any:
        raise error

    return get


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster of two nodes, whose node processes are on node "a"."""
    actor = SimpleNamespace(remote=lambda *arguments: SimpleNamespace(attach=actor, stop=actor))
    group = SimpleNamespace(bundle_count=1)
    made = SimpleNamespace(
        is_initialized=lambda: True,
        nodes=lambda: [{"Alive": True}] * 2,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "b"),
        get_actor=lambda name: SimpleNamespace(attach=actor),
        get=lambda references, timeout: None,
        remote=lambda **options: lambda kind: SimpleNamespace(options=lambda **more: actor),
        exceptions=SimpleNamespace(
            RayError=RayError, GetTimeoutError=GetTimeoutError, RayTaskError=RayTaskError
        ),
        util=SimpleNamespace(
            get_placement_group=lambda name: group,
            placement_group_table=lambda group: {"bundles_to_node_id": {0: "a"}},
            scheduling_strategies=SimpleNamespace(
                PlacementGroupSchedulingStrategy=lambda *arguments, **named: None
            ),
        ),
    )
    monkeypatch.setitem(sys.modules, "ray", cast("Any", made))
    return made


def said(function: Callable[[], object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        function()
    return str(raised.value)


def test_arguments_of_start_nodes_are_named(ray: Any) -> None:
    wrong: Any = 1.5
    assert said(lambda: start_nodes(memory=wrong), errors.InvalidArgumentError) == (
        "start_nodes memory: got 1.5, must be bytes or a text"
    )
    assert said(lambda: start_nodes(2), errors.FailedPreconditionError) == (
        "headrace.ray.start_nodes(): 'headrace' runs already on 1 nodes, not 2: stop them, or give "
        "another name"
    )
    assert isinstance(start_nodes(1), NodeActors)


LOST = (
    "the actor of a node process did not answer within {} s: its node may have been lost; add a "
    "node to the cluster, or call start_nodes() again"
)


def test_a_node_process_that_does_not_start_is_told(ray: Any) -> None:
    ray.get = failing(GetTimeoutError())
    assert said(lambda: start_nodes(timeout=3), errors.DeadlineExceededError) == (
        f"headrace.ray.start_nodes(): {LOST.format(3)}"
    )
    ray.get = failing(RayTaskError(errors.NotFoundError("no program; build it")))
    assert said(start_nodes, errors.NotFoundError) == "no program; build it"
    ray.get = failing(RayError("the actor died"))
    assert said(start_nodes, errors.UnavailableError) == (
        "headrace.ray.start_nodes(): the actor died; call start_nodes() again"
    )


def test_a_worker_where_no_node_process_is_is_told_so(ray: Any) -> None:
    assert said(node_process, errors.FailedPreconditionError) == (
        "headrace.ray.node_process(): the 1 node processes of 'headrace' are on other nodes, none "
        "on Ray's node b, where this worker runs: start one on each node"
    )
    ray.get_runtime_context = lambda: SimpleNamespace(get_node_id=lambda: "a")
    ray.get = failing(GetTimeoutError())
    assert said(lambda: node_process(start_timeout=4), errors.DeadlineExceededError) == (
        f"headrace.ray.node_process(): {LOST.format(4)}"
    )
    ray.is_initialized = lambda: False
    assert said(node_process, errors.FailedPreconditionError) == (
        "headrace.ray.node_process(): this process is no worker of Ray: call it in one"
    )


def test_a_node_process_that_ends_at_once_names_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "node"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(_nodes, "executable", lambda: str(program))
    actor = _nodes._NodeActor(_core.version, None)
    assert said(actor.attach, errors.UnavailableError) == (
        f"starting a node process on {HOST}: it ended with 3; see the log of its Ray actor"
    )


def test_a_task_that_ray_gives_up_says_that_the_command_goes_on(ray: Any) -> None:
    ray.get = lambda reference: failing(RayError("3 workers died"))()
    error = _result(ray, "packing shard 4 to /data/pack", None)
    assert isinstance(error, errors.UnavailableError)
    assert str(error) == (
        "packing shard 4 to /data/pack: Ray could not finish it, though it tried 9 times: RayError:"
        " 3 workers died; what is finished is kept: do the same again to continue"
    )


def test_a_shard_that_a_task_wrote_elsewhere_is_named(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node that has another folder under the same path."""
    shard = SimpleNamespace(digest="d")

    def by_tasks(ray: Any, tasks: Any, finished: Any, waiting: Any) -> Any:
        finished(0, shard)
        yield shard

    monkeypatch.setattr(_packing, "by_tasks", by_tasks)
    monkeypatch.setattr(_packing._Source, "of", lambda work: None)
    partial = SimpleNamespace(
        target=tmp_path / "pack", data=tmp_path, shard_name=lambda *arguments: "shard-0.hrp"
    )
    plan = SimpleNamespace(shard_homes=[None], blocks_of=lambda number: [], data_bytes=lambda n: 1)
    work = SimpleNamespace(
        gathers=False, partial=partial, missing=[0], plan=plan, advance=lambda count: None
    )
    write = writing_tasks("packing", None)
    assert said(lambda: write(cast("PackWork", work)), errors.FailedPreconditionError) == (
        f"packing to {tmp_path / 'pack'}: shard-0.hrp, which a task wrote, is not here: the target "
        "and the data must lie on storage that all Ray nodes share, under the same paths"
    )
    (tmp_path / "shard-0.hrp").touch()
    assert write(cast("PackWork", work)) == {0: shard}
    assert os.listdir(tmp_path) == ["shard-0.hrp"]
