"""Names of earlier versions, and how each is written now: CHANGELOG.md has the same."""

from __future__ import annotations

NAMES = {
    "headrace": {
        "Batch": "hr.Fields",
        "Engine": "hr.EngineOptions",
        "NodeProcess": "hr.Job(node=hr.Node(...))",
        "Nodes": "hr.Job(node=hr.Node(...))",
        "Sharding": "hr.Job(rank=..., world_size=...)",
    },
    "headrace.formats": {"pack": "headrace.pack"},
    "headrace.torch": {
        "SampleStream": "hr.Loader(path, 256, transform=..., workers=4), which a trainer takes as "
        "headrace.torch.TrainerLoader(loader)"
    },
}
"""By module."""

ARGUMENTS = {
    "budget": "memory=budget.part(name, share)",
    "cache": "tiers=hr.Cache(tiers, placement=...)",
    "isolation": "job=hr.Job(node=False), or job=hr.Job(node=hr.Node())",
    "node_process": "job=hr.Job(node=hr.Node(...)), or job=hr.Job(node=False)",
    "nodes": "job=hr.Job(node=hr.Node(...))",
    "sharding": "job=hr.Job(rank=..., world_size=...)",
    "worker_init_fn": "workers=hr.Workers(init_fn=...)",
    "worker_start": "workers=hr.Workers(start=...)",
}
"""Of `headrace.Loader`; those that are options of a group now, under their own names, aside."""

COMMANDS = {
    "quality": "headrace order PATH",
    "trace": "headrace report --merge FILE... -o FILE",
    "watchdog": "headrace top --watch",
}

OPTIONS = {
    "order": {"--limit": "--print"},
    "pack": {"--workers": "--threads (with --on ray: --jobs)"},
    "verify": {"--workers": "--threads"},
}
"""By command."""


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that a module does not have."""
    now = NAMES.get(module, {}).get(name)
    hint = "" if now is None else f"; write {now}"
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)
