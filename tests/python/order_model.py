"""docs/orders.md as slow Python: written from that page, to be compared with the C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator

WORD = 2**32
TABLE_MAX = 2**27
CANDIDATES = 8

ORDER, AUGMENT, SUBSTITUTE, PACK, POOL = 1, 2, 3, 4, 5


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


class EpochPool:
    """One pool of the order `epoch` in one epoch; `pieces` are lists of samples."""

    def __init__(self, pieces: list[list[int]], next_pieces: list[list[int]], words: Words) -> None:
        self.pieces = pieces
        self.next_pieces = next_pieces  # of the next epoch: only issued, never drawn here
        self.words = words
        self.drawn: list[int] = []
        self.issued: list[tuple[int, list[int]]] = []  # (draw, piece), in order
        self.early_joins = 0

    def run(
        self,
        draws: int,
        units: Callable[[int], int],
        budget: int,
        joins_at_once: int,
        full_join: int,
        delay: int,
    ) -> None:
        waiting: list[tuple[int, list[int]]] = []  # (draw at which it joins, piece)
        joined: list[int] = []
        resident: list[int] = []
        to_issue = [(piece, True) for piece in self.pieces]
        to_issue += [(piece, False) for piece in self.next_pieces]
        issued_units = 0
        last_join = 0
        for k in range(draws):
            while to_issue:
                piece, of_this_epoch = to_issue[0]
                if sum(map(units, resident)) + sum(map(units, piece)) > budget:
                    break
                del to_issue[0]
                resident += piece
                self.issued.append((k, piece))
                if of_this_epoch:
                    issued_units += sum(map(units, piece))
                    if issued_units > budget:
                        join = k + delay
                    elif issued_units <= joins_at_once or budget == full_join:
                        join = 0
                    else:
                        join = (issued_units - joins_at_once) * delay // (budget - full_join)
                    last_join = max(last_join, join)
                    waiting.append((last_join, piece))
            while waiting and waiting[0][0] <= k:
                joined += waiting.pop(0)[1]
            if not joined:
                joined += waiting.pop(0)[1]
                self.early_joins += 1
            r = self.words.below(len(joined))
            sample = joined[r]
            joined[r] = joined[-1]
            del joined[-1]
            resident.remove(sample)
            self.drawn.append(sample)


def epoch_pieces(
    blocks: list[list[int]], delivered: int, pools: int, seed: int, epoch: int
) -> list[list[list[int]]]:
    """Of each pool, the pieces of its stretch."""
    sequence = [
        (sample, number)
        for number in permutation(len(blocks), seed, epoch)
        for sample in blocks[number]
    ][:delivered]
    stretches: list[list[list[int]]] = []
    for pool in range(pools):
        length = len(range(pool, delivered, pools))
        stretch, sequence = sequence[:length], sequence[length:]
        pieces: list[list[int]] = []
        last = None
        for sample, number in stretch:
            if number != last:
                pieces.append([])
            pieces[-1].append(sample)
            last = number
        stretches.append(pieces)
    return stretches


def epoch_epoch(
    block_sizes: list[int],
    batch_size: int,
    *,
    pool_units: int,
    pools: int,
    units: Callable[[int], int] = lambda sample: 1,
    join_permille: int = 250,
    first_fill_permille: int = 1000,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
    rank: int = 0,
    world_size: int = 1,
) -> list[list[int]]:
    """The batches of one rank in one epoch of the order `epoch`."""
    blocks: list[list[int]] = []
    n = 0
    for size in block_sizes:
        blocks.append(list(range(n, n + size)))
        n += size
    global_batch = batch_size * world_size
    delivered = n // global_batch * global_batch if drop_last else n
    total_units = sum(map(units, range(n)))
    budget = pool_units // pools
    full_join = budget - budget * join_permille // 1000
    joins_at_once = full_join * first_fill_permille // 1000 if epoch == 0 else full_join
    delay = max(1, budget * n * join_permille // (1000 * total_units))

    here = epoch_pieces(blocks, delivered, pools, seed, epoch)
    following = epoch_pieces(blocks, delivered, pools, seed, epoch + 1)
    positions = [-1] * delivered
    for number in range(pools):
        pool = EpochPool(here[number], following[number], Words(seed, epoch, POOL, number))
        draws = len(range(number, delivered, pools))
        pool.run(draws, units, budget, joins_at_once, full_join, delay)
        positions[number::pools] = pool.drawn

    if len(positions) % world_size != 0:
        begin = len(positions) // global_batch * global_batch  # of the last step
        last = positions[begin:]
        missing = -len(positions) % world_size
        positions += [last[i % len(last)] for i in range(missing)]
    batches = []
    for begin in range(0, len(positions), global_batch):
        batches.append(positions[begin : begin + global_batch][rank::world_size])
    return batches
