"""The names in the tables of the extension, for type checkers. `make stub` writes this file."""

from typing import Literal

OrderName = Literal[
    "exact",
    "batch",
    "epoch",
    "redox",
]
Placement = Literal[
    "coordinated",
    "frequency",
    "pinned",
    "first_touch",
    "reuse",
    "belady",
    "lru",
    "none",
]
Io = Literal[
    "auto",
    "io_uring",
    "threads",
    "decoded",
    "rowgroups",
    "object_store",
    "synthetic",
]
