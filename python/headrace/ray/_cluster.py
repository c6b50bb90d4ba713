"""The Ray cluster that this process belongs to, or connects to."""

from __future__ import annotations

import logging
import os
from typing import Any

from headrace import _core
from headrace.errors import FailedPreconditionError, UnavailableError

_NEEDS = "pip install ray"


def ray_module(doing: str) -> Any:
    """The package `ray`.

    Raises:
        ImportError: it is not installed; with what to do.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ImportError(f"{doing} needs {error.name}: {_NEEDS}") from error
    return ray


def connected(doing: str) -> Any:
    """The package `ray`, connected to a cluster: the program's own, else that of `RAY_ADDRESS`,
    else the one that runs on this machine. It starts none.

    Raises:
        ImportError: it is not installed.
        UnavailableError: there is no cluster, or it cannot be reached.
    """
    ray = ray_module(doing)
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        where = "on this machine" if address == "auto" else f"at RAY_ADDRESS={address}"
        raise UnavailableError(
            f"{doing}: no Ray cluster can be reached {where}: start one with `ray start --head`, "
            f"or set RAY_ADDRESS to one: {error}"
        ) from error
    return ray


def check_version(version: str) -> None:
    """In a task: refuses to work for a driver of another version of headrace.

    Raises:
        FailedPreconditionError: with both versions.
    """
    if version != _core.version:
        raise FailedPreconditionError(
            f"a Ray task: this node has headrace {_core.version}, the driver {version}: install "
            "the same version on all nodes"
        )
