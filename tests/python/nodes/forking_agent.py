"""Imported before torchrun's agent is forked (forks): it starts its ranks as forks, too.

Everything else is torchrun's: the rendezvous, restarts, variables and logs.
"""

import torch.distributed.run  # noqa: F401  # what an agent imports
from forks.server import ForkedPopen
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler


def _start(handler: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> ForkedPopen:
    return ForkedPopen(args, env=env)


SubprocessHandler._popen = _start
