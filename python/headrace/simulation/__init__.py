"""Simulates jobs of published policies on a cluster that a scenario describes."""

from __future__ import annotations

from headrace._core import PolicyRates, PolicyReaders
from headrace.simulation.own import Fetch, Job, OwnPolicy, Start
from headrace.simulation.scenario import (
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

__all__ = [
    "Fetch",
    "Fetched",
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
    "TierRates",
    "load_scenario",
    "policies",
    "shipped_scenarios",
    "simulate",
]
