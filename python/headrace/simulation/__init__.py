"""Simulates jobs of published policies on a cluster that a scenario describes."""

from __future__ import annotations

from headrace._core import PolicyRates, PolicyReaders
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
    Refused,
    Simulation,
    policies,
    simulate,
)
from headrace.simulation.sweep import SweepPoint, parse_sweep, sweep

__all__ = [
    "Fetch",
    "Fetched",
    "IndexSizes",
    "Job",
    "Outcome",
    "OwnPolicy",
    "Policy",
    "PolicyRates",
    "PolicyReaders",
    "Refused",
    "Scenario",
    "Simulation",
    "Sizes",
    "Staging",
    "Start",
    "StorageRates",
    "SweepPoint",
    "TierRates",
    "load_scenario",
    "parse_sweep",
    "policies",
    "shipped_scenarios",
    "simulate",
    "sweep",
]
