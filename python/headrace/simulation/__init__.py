"""Simulates jobs of published policies and of Headrace's orders on a cluster that a scenario
describes, or on a machine that was measured, and advises how to load a dataset there."""

from __future__ import annotations

from headrace._core import PolicyRates, PolicyReaders
from headrace.simulation.advise import Advice, Bill, Candidate, advise
from headrace.simulation.machine import Setup, TierChoice, Workload, machine_scenario
from headrace.simulation.own import Fetch, Job, OwnPolicy, Start
from headrace.simulation.scenario import (
    IndexSizes,
    Scenario,
    Sizes,
    Staging,
    StorageRates,
    TierRates,
    load_scenario,
    shipped_scenarios,
)
from headrace.simulation.simulate import (
    Fetched,
    Outcome,
    Policy,
    RankStages,
    Refused,
    Simulation,
    policies,
    simulate,
)
from headrace.simulation.sweep import SweepPoint, parse_sweep, sweep

__all__ = [
    "Advice",
    "Bill",
    "Candidate",
    "Fetch",
    "Fetched",
    "IndexSizes",
    "Job",
    "Outcome",
    "OwnPolicy",
    "Policy",
    "PolicyRates",
    "PolicyReaders",
    "RankStages",
    "Refused",
    "Scenario",
    "Setup",
    "Simulation",
    "Sizes",
    "Staging",
    "Start",
    "StorageRates",
    "SweepPoint",
    "TierChoice",
    "TierRates",
    "Workload",
    "advise",
    "load_scenario",
    "machine_scenario",
    "parse_sweep",
    "policies",
    "shipped_scenarios",
    "simulate",
    "sweep",
]
