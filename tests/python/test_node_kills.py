"""kill -9 at random steps, many times: other ranks continue or get an error; nothing is left.

HEADRACE_KILLS=50 has fifty of them.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from loader_data import COUNT, flat, shared_names
from node_ranks import RankError, Ranks, wait_for_end

import headrace as hr

KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))
GONE_S = 20.0  # See test_node.py.


def sockets() -> dict[str, str]:
    """By inode, the names of node processes' sockets."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    columns = [line.split() for line in lines if f"@headrace-{os.geteuid()}-" in line]
    return {each[6]: each[7] for each in columns}


def served_by(pid: int) -> set[str]:
    """Names of the sockets that the process has: others may serve some of their own."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    inodes = {str(each.stat().st_ino) for each in descriptors if each.is_socket()}
    return {name for inode, name in sockets().items() if inode in inodes}


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_death_is_known_and_leaves_nothing(numbered: Path, seed: int) -> None:
    hr.open(numbered)  # Its index is made once.
    chance = random.Random(seed)
    count = chance.choice([2, 3])
    order = chance.choice(["exact", "batch", "epoch"])
    shared = shared_names()
    with Ranks(count) as ranks:
        ranks.ask("open_", str(numbered), batch_size=2, order=order, seed=seed)
        node = ranks[0].ask("node_pid")
        names = served_by(node)
        assert names
        ranks.ask("steps", chance.randrange(5))
        if chance.random() < 0.5:
            os.kill(node, signal.SIGKILL)
            killed = time.monotonic()
            for rank in ranks:
                rank.say("forever")
            for rank in ranks:
                with pytest.raises(RankError, match="the node process") as raised:
                    rank.answer()
                assert raised.value.kind == "UnavailableError"
            assert time.monotonic() - killed < GONE_S
        else:
            victim = chance.randrange(count)
            survivors = [rank for number, rank in enumerate(ranks) if number != victim]
            ranks[victim].signal(signal.SIGKILL)
            for rank in survivors:
                rank.say("steps", COUNT)
            assert all(flat(rank.answer()) for rank in survivors)
            for rank in survivors:
                rank.say("close")
            for rank in survivors:
                rank.answer()
        wait_for_end(node)
    assert not names & set(sockets().values())
    assert shared_names() <= shared
