"""Measures what the other nodes of a job give, through the service of their node processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from headrace import errors
from headrace._arguments import given_path
from headrace._descriptors import taking_descriptors
from headrace._nodes.launch import NODES, Launch, find_launch
from headrace._nodes.plan import TOKEN, NodePlan, meet, way_to_meet
from headrace._nodes.process import executable
from headrace._options.groups import Node
from headrace.errors import HeadraceError, InvalidArgumentError, UnavailableError

SAMPLE_BYTES = (4096, 100 * 2**10, 2**20)
"""Of the samples that nodes give each other here: src/node/links/link_probe.h."""
_MEET_S = 120
_ANSWER_S = 10
_END_S = 2.0
_CODES: dict[int, type[HeadraceError]] = {  # StatusCode of include/headrace/status.h
    1: errors.CancelledError,
    3: errors.InvalidArgumentError,
    4: errors.DeadlineExceededError,
    5: errors.NotFoundError,
    8: errors.ResourceExhaustedError,
    9: errors.FailedPreconditionError,
    11: errors.OutOfRangeError,
    14: errors.UnavailableError,
    15: errors.DataLossError,
}


@dataclass(frozen=True)
class LinkSlice:
    """One measurement."""

    rate: float
    """Bytes a second of all samples together."""
    operations: int
    bytes: int
    cpu_seconds: float
    """Of the process that asked."""


def links_launch() -> Launch:
    """This process among those that measure links: one on each node of a job.

    Raises:
        InvalidArgumentError: there is no job of several nodes.
    """
    launch = find_launch()
    nodes = None if launch is None else launch.nodes
    if launch is None or nodes is None or launch.node is None or nodes < 2:
        raise InvalidArgumentError(
            f"--links: {launch or 'no launcher started this process'}: links are measured between "
            "the nodes of a job: run the same command on each of them, as `torchrun --nnodes 2 "
            "--nproc-per-node 1 ... --no-python headrace profile ... --links` does, or srun with "
            f"{NODES} and {TOKEN}"
        )
    return launch


class LinkProcess:
    """A process that gives the other nodes samples, and asks them for theirs.

    As a context: at the end of the block the process ends.
    """

    def __init__(self, launch: Launch, wanted: Node, seconds: float) -> None:
        """Starts it, and waits for those of the other nodes.

        `seconds`: how long all measurements take, about.

        Raises:
            InvalidArgumentError: nodes cannot meet, or may not talk to each other.
            UnavailableError: a node does not come in time.
        """
        self._begin_s = int(2 * seconds) + _MEET_S
        self._plan = _plan(launch, wanted)
        command = [executable(), *_arguments(self._plan)]
        self._errors: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115  # end() closes it
            "w+", encoding="utf-8", errors="replace"
        )
        with taking_descriptors("starting a process that measures links"):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
                errors="surrogateescape",
            )
        try:
            self._connect()
        except BaseException:
            self.end()
            raise

    @property
    def nodes(self) -> int:
        """How many the job has."""
        return self._plan.nodes

    def measure(
        self, read_bytes: int, in_flight: int, seconds: float, seconds_max: float
    ) -> LinkSlice:
        """Asks the other nodes in turn for samples of `read_bytes`, so many at a time."""
        times = [round(limit * 1e9) for limit in (seconds, seconds_max)]
        words = self._ask(f"measure {read_bytes} {in_flight} {times[0]} {times[1]}", "slice")
        return LinkSlice(float(words[0]), int(words[1]), int(words[2]), float(words[3]))

    def meet(self) -> None:
        """Waits until all nodes do. Call it at the end, so that no node ends too early."""
        self._ask("meet", "ok")

    def end(self) -> None:
        """Ends the process, whatever it does."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:  # It waits for other nodes.
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> LinkProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process."""
        self.end()

    def _connect(self) -> None:
        (address,) = self._answer("address")
        plan = self._plan
        if plan.store is None:
            addresses, token = list(plan.addresses), os.environ[TOKEN]
        else:
            addresses, token = meet(plan, plan.store, address, _MEET_S)
        if any("\n" in text for text in (*addresses, token)):
            raise InvalidArgumentError(f"{NODES}, {TOKEN}: must be one line each")
        head = f"connect {plan.node} {_ANSWER_S * 10**9} {self._begin_s * 10**9} {plan.nodes}"
        self._ask("\n".join((head, *addresses, token)), "ok")
        self.meet()

    def _ask(self, command: str, expected: str) -> list[str]:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(command + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer(expected)

    def _answer(self, expected: str) -> list[str]:
        pipe = self._process.stdout
        assert pipe is not None
        line = pipe.readline()
        if not line.endswith("\n"):
            raise self._ended()
        kind, *words = line.rstrip("\n").split(" ")
        if kind == "error":
            error = _CODES.get(int(words[0]), errors.InternalError)
            raise error(f"measuring links: {' '.join(words[1:])}")
        if kind != expected:
            raise errors.InternalError(f"measuring links: got {line!r}, expected {expected!r}")
        return words

    def _ended(self) -> UnavailableError:
        code = self._process.wait()
        self._errors.seek(0)
        why = self._errors.read()[-2000:].strip()
        return UnavailableError(
            f"measuring links: the process ended with {code}: {why}; run the command again on all "
            "nodes"
        )


def _plan(launch: Launch, wanted: Node) -> NodePlan:
    nodes, node = launch.nodes, launch.node
    assert nodes is not None
    assert node is not None
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        with contextlib.suppress(ImportError):  # Else addresses are given, or an error says so.
            import torch.distributed  # noqa: F401  # the way to meet is torchrun's store
    way = way_to_meet(wanted, nodes, range(nodes), node, _MEET_S)
    if way.store is None and not way.addresses:
        raise InvalidArgumentError(
            "--links: the nodes cannot meet: start them with torchrun, or set the environment "
            f"variables {NODES}, the addresses of all nodes, and {TOKEN}, a secret"
        )
    if way.missing is not None:
        raise InvalidArgumentError(
            "--links: the nodes are on other machines: give --certificate, --key and --authority, "
            "or say by --open-network that their network is private"
        )
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    prefix = f"headrace/{run}/links"
    return NodePlan(node, nodes, wanted, way.store, way.listen, prefix, 0, way.addresses)


def _arguments(plan: NodePlan) -> list[str]:
    node: Any = plan.wanted
    files = {name: getattr(node, name) for name in ("authority", "certificate", "key")}
    if any(files.values()) and not all(files.values()):
        raise InvalidArgumentError("--certificate, --key and --authority: give all three, or none")
    arguments = ["--links", plan.listen]
    if node.open_network:
        arguments.append("--open-network")
    for name, path in files.items():
        if path:
            arguments += [f"--{name}", given_path(f"--{name}", path)]
    if node.certificate_name:
        arguments += ["--certificate-name", node.certificate_name]
    return arguments
