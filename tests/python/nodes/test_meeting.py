"""How nodes exchange addresses through a store that may hold those of an earlier launch."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace._nodes.meeting import Meeting, Met
from headrace.errors import UnavailableError

PATIENCE_S = 60.0


class Store:
    """As torch's, in this process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class Node:
    """One node's part, on a thread; `looks` grows each time that it has looked in vain."""

    def __init__(self, store: Store, node: int, nodes: int, address: str) -> None:
        self.looks = threading.Semaphore(0)
        self.met: Met | None = None
        meeting = Meeting(store, "job", node, nodes, pause=self._pause)

        def hold() -> None:
            self.met = meeting.hold(address, f"machine {node}", PATIENCE_S)

        self._thread = threading.Thread(target=hold, daemon=True)
        self._thread.start()

    def _pause(self, _: float) -> None:
        self.looks.release()

    def look(self, times: int = 3) -> None:
        """Waits until it has looked again, each time at all there is."""
        for _ in range(times):
            assert self.looks.acquire(timeout=PATIENCE_S)

    def result(self) -> Met:
        self._thread.join(PATIENCE_S)
        assert self.met is not None
        return self.met


def hold(store: Store, addresses: list[str], order: list[int] | None = None) -> list[Met]:
    nodes: dict[int, Node] = {}
    for node in order or range(len(addresses)):
        nodes[node] = Node(store, node, len(addresses), addresses[node])
    return [nodes[node].result() for node in range(len(addresses))]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_all_are_told_all_addresses_and_one_token(order: list[int]) -> None:
    met = hold(Store(), ["a:1", "b:2", "c:3"], order)
    assert met[0].addresses == ["a:1", "b:2", "c:3"]
    assert met[0].machines == ["machine 0", "machine 1", "machine 2"]
    assert len(met[0].token) == 64
    assert met[0] == met[1] == met[2]


def test_what_an_earlier_launch_left_is_not_believed() -> None:
    store = Store()
    before = hold(store, ["a:1", "b:2", "c:3"])
    first = Node(store, 1, 3, "b:5")
    first.look()  # It finds the earlier list, and the earlier token.
    zero = Node(store, 0, 3, "a:4")
    zero.look()  # It finds the earlier entry of node 2, and node 1 confirms a list with it.
    first.look()
    last = Node(store, 2, 3, "c:6")
    for each in (zero.result(), first.result(), last.result()):
        assert each.addresses == ["a:4", "b:5", "c:6"]
        assert each.token != before[0].token


@pytest.mark.parametrize("now", [["a:7", "b:8"], ["a:7", "b:8", "c:9", "d:1"]])
def test_a_launch_of_fewer_or_more_nodes_meets(now: list[str]) -> None:
    store = Store()
    hold(store, ["a:1", "b:2", "c:3"])
    for order in ([0, *range(1, len(now))], [*range(1, len(now)), 0]):
        assert hold(store, now, order)[-1].addresses == now


def late(node: int, store: Store) -> str:
    """What a node says that ran out of time at its second look."""
    times = iter([0.0, 1.0, 7.0])
    meeting = Meeting(store, "job", node, 3, clock=lambda: next(times), pause=lambda _: None)
    with pytest.raises(UnavailableError) as raised:
        meeting.hold("x:1", "here", 5)
    return str(raised.value)


def test_the_node_that_is_missing_is_named() -> None:
    store = Store()
    assert "node 1 of 3 waited up to 5 s for node 0 to list the addresses" in late(1, store)
    assert "node 0 of 3 waited up to 5 s for node 2:" in late(0, store)
    hold(store, ["a:1", "b:2", "c:3"])
    assert "waited up to 5 s for node 1 to confirm the addresses" in late(0, store)


def test_a_store_that_fails_is_named_with_its_error() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("connection reset")

    store = Store()
    failing: Callable[..., None] = fail
    store.set = failing  # type: ignore[method-assign]
    with pytest.raises(UnavailableError, match=r"for the store: .*connection reset"):
        Meeting(store, "job", 0, 2).hold("x:1", "here", 5)
