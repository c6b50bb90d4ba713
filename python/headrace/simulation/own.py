"""A policy of your own: a class that says where each sample comes from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from headrace._arguments import instance, shown
from headrace._core import PolicyRates, PolicyReaders
from headrace._units import counted
from headrace.errors import InvalidArgumentError
from headrace.simulation.scenario import Scenario

Fetch = (
    Literal["storage", "on_demand", "none"]
    | tuple[Literal["tier", "peer"], int]
    | tuple[Literal["storage"], int]
)
"""Where a sample comes from: "storage", ahead of its use, or with the number of nodes that read
storage then; "on_demand": storage, when it is needed; a tier of the node, or of another one, by its
number; "none": it needs no read."""


@dataclass(frozen=True, eq=False)
class Job:
    """What a policy is made for."""

    scenario: Scenario
    sizes: npt.NDArray[np.float64]
    """Bytes of each sample. Read-only."""
    streams: tuple[npt.NDArray[np.uint32], ...]
    """The samples that each node computes on, in order, of all epochs. Read-only."""
    steps_per_epoch: int
    rates: PolicyRates
    """Seconds a byte, by source."""


@dataclass(frozen=True, eq=False)
class Start:
    """What happens before the first step."""

    seconds: float = 0
    """Until the last node is done."""
    storage_bytes: float = 0
    """That nodes read from storage then,"""
    peer_bytes: float = 0
    """and from each other."""
    streams: Sequence[Sequence[int] | npt.NDArray[np.integer[Any]]] | None = None
    """What the nodes compute on in place of `Job.streams`: of each node as many samples. Only where
    `changes_order`."""


class OwnPolicy(ABC):
    """How the nodes of a run read. `simulate` makes one object a run; what a method raises ends it.

    A scenario that the policy does not support: raise FailedPreconditionError in `begin`.
    """

    title = ""
    """Default: the class's name."""
    paper = ""
    changes_order = False
    """Its nodes do not train on what the job's order says."""
    reads_ahead = True
    """Whether staging fetches samples before they are needed."""

    def __init__(self, job: Job | None = None) -> None:
        name = type(self).__name__
        way = f"; give `simulate` the class, {name}: it makes an object of it for each run"
        self.job = instance(f"{name}: job", job, Job, way)

    def begin(self) -> Start:
        """Is called once, before the first step."""
        return Start()

    @abstractmethod
    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        """Of the sample at `place` of the node's stream. Places are asked for in order, some ahead
        of their use. `begin`: the second at which the read would begin."""

    def on_staged(self, node: int, sample: int, end: float) -> None:  # noqa: B027
        """A sample was fetched from storage into staging, at that second."""

    def fill_tiers(self, node: int, seconds: float, readers: PolicyReaders) -> float:
        """Lets tiers read ahead from storage; returns the bytes that they begin to read. Is called
        before each use, once staging is full or has all that follows; `seconds`: when it is."""
        return 0


class Prepared:
    """A policy as the core calls it. Methods that are not overridden are None."""

    def __init__(self, of: type[OwnPolicy], job: Job) -> None:
        self._policy = of(job)
        self._job = job
        self.reads_ahead = bool(of.reads_ahead)
        self.fetch_of = self._policy.fetch_of
        self.on_staged = self._overridden("on_staged")
        self.fill_tiers = self._overridden("fill_tiers")

    def _overridden(self, method: str) -> Callable[..., Any] | None:
        own: Callable[..., Any] = getattr(self._policy, method)
        return None if getattr(type(self._policy), method) is getattr(OwnPolicy, method) else own

    def begin(self) -> Start:
        start = self._policy.begin()
        if not isinstance(start, Start):
            self._refuse("begin", start, "a Start")
        for name in ("seconds", "storage_bytes", "peer_bytes"):
            value = getattr(start, name)
            if not isinstance(value, (int, float, np.number)) or not 0 <= value < math.inf:
                self._refuse("begin", value, "a finite number of at least 0", f" as {name}")
        if start.streams is None:
            return start
        if not self._policy.changes_order:
            self._refuse("begin", start.streams, "None, as changes_order is False", " as streams")
        return replace(start, streams=self._checked(start.streams))

    def _checked(self, streams: Any) -> list[npt.NDArray[np.uint32]]:
        """As the core takes them."""
        nodes, places = len(self._job.streams), len(self._job.streams[0])
        samples = len(self._job.sizes)
        if not isinstance(streams, Sequence) or len(streams) != nodes:
            self._refuse(
                "begin", streams, f"a list of {counted(nodes, 'array')}, one a node", " as streams"
            )
        checked = []
        for node, stream in enumerate(streams):
            array = np.asarray(stream)
            is_right = array.shape == (places,) and np.issubdtype(array.dtype, np.integer)
            if not is_right or array.min() < 0 or array.max() >= samples:
                self._refuse(
                    "begin",
                    stream,
                    f"{counted(places, 'integer')} in [0, {samples - 1}]",
                    f" as streams[{node}]",
                )
            checked.append(np.ascontiguousarray(array, np.uint32))
        return checked

    def refuse_fetch(self, node: int, sample: int, value: Any) -> NoReturn:
        nodes, tiers = self._job.scenario.nodes, len(self._job.scenario.tiers)
        of_tiers = f" ('tier', T) or ('peer', T) with T in [0, {tiers - 1}]," if tiers else ""
        expected = (
            f"'storage', ('storage', READERS) with READERS in [1, {nodes}],{of_tiers} 'on_demand' "
            "or 'none'"
        )
        self._refuse("fetch_of", value, expected, f" for sample {sample} of node {node}")

    def refuse_fill(self, node: int, value: Any) -> NoReturn:
        expected = "a number of bytes, finite and at least 0"
        self._refuse("fill_tiers", value, expected, f" for node {node}")

    def _refuse(self, method: str, value: Any, expected: str, what: str = "") -> NoReturn:
        raise InvalidArgumentError(
            f"{type(self._policy).__name__}.{method}: returned {shown(value)}{what}, must be "
            f"{expected}"
        )


def preparing(
    of: type[OwnPolicy], scenario: Scenario, sizes: npt.NDArray[np.float64]
) -> Callable[[list[npt.NDArray[np.uint32]], int, PolicyRates], Prepared]:
    """What makes the policy of a run."""

    def prepare(
        streams: list[npt.NDArray[np.uint32]], steps_per_epoch: int, rates: PolicyRates
    ) -> Prepared:
        for stream in streams:
            stream.flags.writeable = False
        return Prepared(of, Job(scenario, sizes, tuple(streams), steps_per_epoch, rates))

    return prepare
