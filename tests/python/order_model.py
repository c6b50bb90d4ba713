"""docs/orders.md as slow Python: written from that page, to be compared with the C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator

WORD = 2**32
TABLE_MAX = 2**27
CANDIDATES = 8

ORDER, AUGMENT, SUBSTITUTE, PACK = 1, 2, 3, 4


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p = c0 * 0xD2511F53
        q = c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q % WORD, (p >> 32) ^ c3 ^ k1, p % WORD
        k0 = (k0 + 0x9E3779B9) % WORD
        k1 = (k1 + 0xBB67AE85) % WORD
    return c0, c1, c2, c3


class Words:
    """The stream of words of (seed, epoch, stream, item)."""

    def __init__(self, seed: int, epoch: int, stream: int, item: int = 0) -> None:
        self._words = self._generate(seed, epoch, stream, item)

    @staticmethod
    def _generate(seed: int, epoch: int, stream: int, item: int) -> Iterator[int]:
        block = 0
        while True:
            counter = (block, stream + (epoch << 8), item % WORD, item >> 32)
            yield from philox(counter, (seed % WORD, seed >> 32))
            block += 1

    def next32(self) -> int:
        return next(self._words)

    def next64(self) -> int:
        low = self.next32()
        return low + (self.next32() << 32)

    def below(self, n: int) -> int:
        bits, draw = (32, self.next32) if n <= WORD else (64, self.next64)
        product = draw() * n
        while product % 2**bits < 2**bits % n:
            product = draw() * n
        return product >> bits


def permutation(n: int, seed: int, epoch: int, stream: int = ORDER) -> list[int]:
    assert n <= TABLE_MAX
    words = Words(seed, epoch, stream)
    entries = list(range(n))
    for left in range(n, 1, -1):
        other = words.below(left)
        entries[left - 1], entries[other] = entries[other], entries[left - 1]
    return entries


def keyed_bijection(n: int, seed: int, epoch: int, stream: int = ORDER) -> Callable[[int], int]:
    words = Words(seed, epoch, stream)
    keys = [words.next64() for _ in range(8)]
    bits = max(2, (n - 1).bit_length())
    low_bits = bits // 2
    low_size, high_size = 2**low_bits, 2 ** (bits - low_bits)

    def f(value: int, key: int) -> int:
        x = (value + key) * 0xBF58476D1CE4E5B9 % 2**64
        x ^= x >> 29
        x = x * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 32)

    def mix(value: int) -> int:
        low, high = value % low_size, value >> low_bits
        for r in range(0, 8, 2):
            low ^= f(high, keys[r]) % low_size
            high ^= f(low, keys[r + 1]) % high_size
        return (high << low_bits) + low

    def entry(position: int) -> int:
        value = mix(position)
        while value >= n:
            value = mix(value)
        return value

    return entry


def exact_epoch(
    n: int,
    batch_size: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    rank: int = 0,
    world_size: int = 1,
) -> list[list[int]]:
    """The batches of one rank in one epoch of the order `exact`."""
    samples = permutation(n, seed, epoch) if shuffle else list(range(n))
    full_steps = n // (batch_size * world_size)
    rows = full_steps * batch_size if drop_last else -(-n // world_size)
    of_rank = [samples[(row * world_size + rank) % n] for row in range(rows)]
    return [of_rank[first : first + batch_size] for first in range(0, rows, batch_size)]


def candidates(n: int, seed: int, epoch: int, wanted: int) -> list[int]:
    """Those that may stand in for `wanted`, in the order in which they are tried."""
    words = Words(seed, epoch, SUBSTITUTE, wanted)
    drawn = [words.below(n - 1) for _ in range(CANDIDATES)]
    return [d if d < wanted else d + 1 for d in drawn]
