"""Machine profiles of `headrace profile`, and predictions of epochs from them.

>>> machine = hr.profile.load("machine.toml")
>>> work = hr.profile.EpochWork(samples=10_000, decode_bytes=1e9, storage_reads=[(100_000, 10_000)])
>>> hr.profile.predict_epoch(machine, work).samples_per_second

`headrace docs model` has the file's format, the equations and their limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._process.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.profile._machine import (
        DatasetFacts,
        DecodeRates,
        Host,
        Link,
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
    "Link",
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

_PREDICTS = ("EpochWork", "Prediction", "TierWork", "predict_epoch")

# Most loaders have no profile.
if not TYPE_CHECKING:  # A type checker would take any name for one of these.
    __getattr__, __dir__ = lazy_names(
        __name__, {name: "._predict" if name in _PREDICTS else "._machine" for name in __all__}
    )
