"""Simulates a job on a cluster: which policy, cache or machine, before buying or waiting."""

from __future__ import annotations

from headrace.simulation.scenario import Scenario, load_scenario, shipped_scenarios
from headrace.simulation.simulate import Outcome, Policy, Refused, Simulation, policies, simulate

__all__ = [
    "Outcome",
    "Policy",
    "Refused",
    "Scenario",
    "Simulation",
    "load_scenario",
    "policies",
    "shipped_scenarios",
    "simulate",
]
