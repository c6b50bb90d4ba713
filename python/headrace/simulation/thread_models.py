"""Loaders that divide a node's threads among its ranks each in its own way, as Lobster's paper
compares them: Headrace's engine runs them in virtual time, with the order `exact`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.simulation.scenario import Scenario

_LOBSTER = "Liu et al., ICPP'22"


@dataclass(frozen=True)
class ThreadModel:
    """Threads that load and that preprocess, and what tiers keep."""

    name: str
    title: str
    paper: str
    schedule: str
    """Shares the threads among the ranks, as `Scenario.schedule`."""
    placement: str
    loading: int | None = None
    """Threads of a rank that load, all others preprocess; None: as the scenario divides them."""

    def why_not(self, scenario: Scenario) -> str:
        """Why it does not support the scenario; empty: it does."""
        if scenario.ranks == 1:
            return "shares a node among its ranks, and the scenario has one; raise job.ranks"
        reads = scenario.storage.reads_in_flight
        if reads is None:
            return "needs storage.reads_in_flight: the threads of a node that load"
        threads = reads + scenario.staging.threads
        if self.loading is not None and threads < (self.loading + 1) * scenario.ranks:
            return (
                f"has {self.loading} threads a rank that load and at least one that preprocesses, "
                f"and the scenario has {threads} for {scenario.ranks} ranks; raise staging.threads"
            )
        return ""

    def of(self, scenario: Scenario) -> Scenario:
        """The scenario as this loader runs it, with as many threads. It must support it."""
        staging, storage = scenario.staging, scenario.storage
        if self.loading is not None and storage.reads_in_flight is not None:
            loading = self.loading * scenario.ranks
            threads = storage.reads_in_flight + staging.threads
            storage = replace(storage, reads_in_flight=loading)
            staging = replace(staging, threads=threads - loading)
        return replace(
            scenario,
            schedule=self.schedule,
            placement=self.placement,
            storage=storage,
            staging=staging,
        )


THREAD_MODELS = (
    ThreadModel(
        "torch",
        "as many threads a rank load, and preprocess, always; the page cache",
        f"as in {_LOBSTER}",
        "fixed",
        "lru",
    ),
    ThreadModel(
        "dali",
        "three threads a rank load, others preprocess; the page cache",
        f"as in {_LOBSTER}",
        "fixed",
        "lru",
        loading=3,
    ),
    ThreadModel(
        "nopfs_threads",
        "torch's threads, tiers that keep what NoPFS keeps",
        f"as in {_LOBSTER}",
        "fixed",
        "frequency",
    ),
    ThreadModel(
        "lobster",
        "threads move between ranks and stages, tiers keep by reuse distance",
        _LOBSTER,
        "lobster",
        "reuse",
    ),
    ThreadModel(
        "lobster_th",
        "Lobster's threads, the page cache",
        _LOBSTER,
        "lobster",
        "lru",
    ),
    ThreadModel(
        "lobster_evict",
        "dali's threads, tiers keep by reuse distance",
        _LOBSTER,
        "fixed",
        "reuse",
        loading=3,
    ),
)
"""In the order of docs; names are those of policies."""
