"""docs/orders.md as slow Python: written from that page, to be compared with the C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import gcd

WORD = 2**32
TABLE_MAX = 2**27
BIJECTION_FROM = 2**24  # the default of orders
CANDIDATES = 128

ORDER, AUGMENT, SUBSTITUTE, PACK, POOL, DEAL = 1, 2, 3, 4, 5, 8


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


def permutation(
    n: int,
    seed: int,
    epoch: int,
    stream: int = ORDER,
    bijection_from: int = TABLE_MAX + 1,
    item: int = 0,
) -> list[int]:
    assert bijection_from <= TABLE_MAX + 1
    if n >= bijection_from:
        return list(map(keyed_bijection(n, seed, epoch, stream, item), range(n)))
    return shuffled(n, Words(seed, epoch, stream, item))


def shuffled(n: int, words: Words) -> list[int]:
    entries = list(range(n))
    shuffle(entries, words)
    return entries


def shuffle(entries: list[int], words: Words) -> None:
    for left in range(len(entries), 1, -1):
        other = words.below(left)
        entries[left - 1], entries[other] = entries[other], entries[left - 1]


def keyed_bijection(
    n: int, seed: int, epoch: int, stream: int = ORDER, item: int = 0
) -> Callable[[int], int]:
    words = Words(seed, epoch, stream, item)
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
    bijection_from: int = BIJECTION_FROM,
) -> list[list[int]]:
    """The batches of one rank in one epoch of the order `exact`."""
    samples = list(range(n))
    if shuffle:
        samples = permutation(n, seed, epoch, bijection_from=bijection_from)
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
        first_join: int | None,
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
                    elif issued_units <= joins_at_once:
                        join = 0
                    elif first_join is not None:
                        join = (issued_units - joins_at_once) * first_join
                        join //= budget - joins_at_once
                    elif budget == full_join:
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
    blocks: list[list[int]],
    delivered: int,
    pools: int,
    seed: int,
    epoch: int,
    bijection_from: int,
    home: int = 0,
) -> list[list[list[int]]]:
    """Of each pool of a home, the pieces of its stretch; `blocks` are those of the home."""
    order = permutation(len(blocks), seed, epoch, ORDER, bijection_from, home)
    sequence = [(sample, number) for number in order for sample in blocks[number]][:delivered]
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


def home_turns(samples: list[int]) -> list[int]:
    """The home of each position; `samples` of each home."""
    places = [
        (Fraction(2 * j + 1, 2 * n), home) for home, n in enumerate(samples) for j in range(n)
    ]
    return [home for _, home in sorted(places)]


def epoch_epoch(
    block_sizes: list[int],
    batch_size: int,
    *,
    pool_units: int,
    pools: int,
    units: Callable[[int], int] = lambda sample: 1,
    join_permille: int = 250,
    first_fill_permille: int = 1000,
    first_join_permille: int = 0,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
    rank: int = 0,
    world_size: int = 1,
    bijection_from: int = BIJECTION_FROM,
    homes: int = 1,
    home_of_block: list[int] | None = None,
) -> list[list[int]]:
    """The batches of one rank in one epoch of the order `epoch`."""
    blocks: list[list[int]] = []
    n = 0
    for size in block_sizes:
        blocks.append(list(range(n, n + size)))
        n += size
    if home_of_block is None:
        home_of_block = [number % homes for number in range(len(blocks))]
    of_home = [
        [block for block, at in zip(blocks, home_of_block, strict=True) if at == home]
        for home in range(homes)
    ]
    global_batch = batch_size * world_size
    delivered = n // global_batch * global_batch if drop_last else n
    total_units = sum(map(units, range(n)))
    budget = pool_units // pools
    full_join = budget - budget * join_permille // 1000
    joins_at_once = full_join * first_fill_permille // 1000 if epoch == 0 else full_join
    delay = max(1, budget * n * join_permille // (1000 * total_units))
    first_join = None
    if epoch == 0 and first_join_permille:
        first_join = max(1, budget * n * first_join_permille // (1000 * total_units))

    turns = home_turns([sum(map(len, own)) for own in of_home])[:delivered]
    drawn_at: list[list[int]] = []  # each home, in the order of its positions
    for home, own in enumerate(of_home):
        count, own_pools = turns.count(home), pools // homes
        here = epoch_pieces(own, count, own_pools, seed, epoch, bijection_from, home)
        following = epoch_pieces(own, count, own_pools, seed, epoch + 1, bijection_from, home)
        drawn = [-1] * count
        for number in range(own_pools):
            words = Words(seed, epoch, POOL, number * homes + home)
            pool = EpochPool(here[number], following[number], words)
            draws = len(range(number, count, own_pools))
            pool.run(draws, units, budget, joins_at_once, full_join, delay, first_join)
            drawn[number::own_pools] = pool.drawn
        drawn_at.append(drawn)
    positions = [drawn_at[home].pop(0) for home in turns]

    batches = []
    for step, begin in enumerate(range(0, delivered, global_batch)):
        places = positions[begin : begin + global_batch]
        if homes > 1:
            dealt = shuffled(len(places), Words(seed, epoch, DEAL, step))
            for position, place in enumerate(dealt):
                places[place] = positions[begin + position]
        missing = -len(places) % world_size
        places += [places[i % len(places)] for i in range(missing)]
        batches.append(places[rank::world_size])
    return batches


def epoch_defaults(
    block_sizes: list[int],
    batch_size: int,
    world_size: int,
    given: dict[str, int],
    *,
    room: int | None = None,
    unit_bytes: int = 1,
) -> dict[str, int]:
    """All parameters of the order `epoch`, where a sample is a unit; `room` is of one rank."""
    n, blocks, largest = sum(block_sizes), len(block_sizes), max(block_sizes)
    m = min(batch_size * world_size, n)

    def up(a: int, b: int) -> int:
        return -(-a // b)

    def least(p: int) -> int:
        return max(2 * largest, up(m, p))

    join = given.get("join_permille", 250)
    mates = up(sum(c * (c - 1) for c in block_sizes), n)
    x = min((m - 1) * mates, n << 16)
    joined = up(10 * x * n, 2 * n + 10 * x)
    whole = min(up(n * 1000, 1000 - join), 2 * n) + largest
    most = max(up(n, 4), min(whole, 2**28 // unit_bytes))
    useful = min(max(up(joined * 32_000, (1000 - join) * 31), up(n, 10)), most)
    u = given.get("pool_bytes", max(useful, least(1)) * unit_bytes) // unit_bytes

    def room_for(p: int) -> int:
        if room is None or gcd(p, world_size) * room >= u:
            return u
        return 0 if "pool_bytes" in given else gcd(p, world_size) * room

    def holds(p: int, units: int, mean_blocks: int) -> bool:
        enough = units // p >= least(p) and units * blocks >= mean_blocks * p * n
        return p <= blocks and enough

    def choose() -> int:
        if 48 % world_size == 0:
            p = next((p for p in range(48, 0, -1) if 48 % p == 0 and holds(p, u, 16)), 1)
            if room_for(p) == u:
                return p
        for p in range(up(48, world_size) * world_size, 0, -world_size):
            if holds(p, room_for(p), 16):
                return p
        divisors = [p for p in range(world_size, 0, -1) if world_size % p == 0]
        for mean_blocks in (4, 0):
            for p in divisors:
                if holds(p, room_for(p), mean_blocks):
                    return p
        if "pool_bytes" in given:
            return next((p for p in divisors if holds(p, u, 0)), 1)
        return next(p for p in divisors if p <= blocks)

    pools = given.get("pools", 0) or choose()
    if "pool_bytes" not in given:
        u = max(room_for(pools), pools * least(pools))
    budget = u // pools
    full = budget - budget * join // 1000
    at_once = max(up(2**26, pools * unit_bytes), largest, up(m, pools))
    fill = given.get("first_fill_permille", 1000 if at_once >= full else up(at_once * 1000, full))
    spread = 0
    if at_once < full and "first_fill_permille" not in given:
        eight = up(8 * up(m, pools) * 1000, budget)
        spread = max(1, min(max(250, eight), (budget - full * fill // 1000) * 1000 // budget))
    return {
        "pool_bytes": given.get("pool_bytes", u * unit_bytes),
        "pools": pools,
        "join_permille": join,
        "first_fill_permille": fill,
        "first_join_permille": given.get("first_join_permille", spread),
    }
