"""Machine profiles of `headrace profile`, and predictions of epochs from them.

>>> machine = hr.profile.load("machine.toml")
>>> work = hr.profile.EpochWork(samples=10_000, decode_bytes=1e9, storage_reads=[(100_000, 10_000)])
>>> hr.profile.predict_epoch(machine, work).samples_per_second

`headrace docs model` has the file's format, the equations and their limits.
"""

from headrace.profile._machine import (
    DatasetFacts,
    DecodeRates,
    Host,
    MachineProfile,
    Preprocess,
    Rates,
    SizedRates,
    Storage,
    Tier,
    load,
)
from headrace.profile._predict import EpochWork, Prediction, TierWork, predict_epoch

__all__ = [
    "DatasetFacts",
    "DecodeRates",
    "EpochWork",
    "Host",
    "MachineProfile",
    "Prediction",
    "Preprocess",
    "Rates",
    "SizedRates",
    "Storage",
    "Tier",
    "TierWork",
    "load",
    "predict_epoch",
]
