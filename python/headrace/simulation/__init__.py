"""Simulates jobs of published policies on a cluster that a scenario describes."""

from __future__ import annotations

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
    "Fetched",
    "IndexSizes",
    "Outcome",
    "Policy",
    "Refused",
    "Scenario",
    "Simulation",
    "Sizes",
    "Staging",
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
