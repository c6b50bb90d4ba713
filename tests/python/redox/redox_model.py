"""The order `redox` of docs/orders.md as slow Python: the papers' tables, arrays and window.

Written from that page, to be compared with the C++. The prefetch window is the papers' own: a list
of marks that shifts with each remote request, searched from end to end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import order_model as model

CHUNK = 6  # the stream of words
REMAP, ARRIVAL = 2**32, 2**33  # the first items of it that are not virtual chunks


@dataclass
class Options:
    samples: int
    blocks: list[int]  # samples of each physical chunk
    batch_size: int = 1
    world_size: int = 1
    rank: int = 0
    ranks: int = 1
    exchange: bool = False
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    chunks_per_virtual: int = 10
    mapping: str = "consecutive"
    refill: str = "max_fill"
    ties: str = "random"
    slot_classes: int = 0
    nodes: int = 1
    prefetch: int = 0
    remote_units: int = 0
    memory_units: int = 0
    remap: bool = False
    arrival: bool = False
    framing: str = "one"
    homes: list[int] | None = None  # of each sample; None: virtual chunks are dealt to nodes
    bijection_from: int = model.BIJECTION_FROM
    units: list[int] | None = None  # of each sample; None: 1
    trace: list[int] | None = None


@dataclass
class Resident:
    sample: int
    read: int


@dataclass
class Read:
    chunk: int
    kept: list[int]


@dataclass
class Answer:
    """A request and what followed: the read, if it took one, and what was sent along."""

    g: int
    node: int
    home: int
    answer: Resident
    held: bool = False  # it had been sent along before
    read: int | None = None
    along: list[Resident] = field(default_factory=list)


@dataclass
class Step:
    deliveries: list[tuple[int, int, int]] = field(default_factory=list)  # sample, rank, read
    reads: list[tuple[int, Read]] = field(default_factory=list)  # with its number in the epoch
    answers: list[Answer] = field(default_factory=list)  # in the order in which requests come
    released: list[Resident] = field(default_factory=list)  # at the end of the epoch
    left: list[Resident] = field(default_factory=list)  # resident after the step, by read, sample
    holders: list[tuple[int, int, Resident]] = field(default_factory=list)  # with home, node


NO_READ = -1


class Chunks:
    """Which physical chunk, virtual chunk and slot a sample belongs to."""

    def __init__(self, options: Options, epoch: int) -> None:
        count = len(options.blocks)
        self.first = [sum(options.blocks[:p]) for p in range(count)]
        self.members: list[list[int]] = []
        self.home: list[int] = []  # of each virtual chunk
        if options.homes is None:
            self.members = self.deal(options, list(range(count)))
            self.home = [v % options.nodes for v in range(len(self.members))]
        else:
            for home in range(options.nodes):
                chunks = [p for p in range(count) if options.homes[self.first[p]] == home]
                dealt = self.deal(options, chunks)
                self.members += dealt
                self.home += [home] * len(dealt)
        if options.remap:
            for home in range(options.nodes):
                mine = [v for v in range(len(self.members)) if self.home[v] == home]
                chunks = [p for v in mine for p in self.members[v]]
                model.shuffle(chunks, model.Words(options.seed, epoch, CHUNK, REMAP + home))
                for v in mine:
                    size = len(self.members[v])
                    self.members[v], chunks = chunks[:size], chunks[size:]
        self.width = [max(options.blocks[p] for p in members) for members in self.members]
        classes = options.slot_classes or max(self.width)
        self.slots = [min(width, classes) for width in self.width]
        self.of_sample: dict[int, tuple[int, int, int]] = {}  # virtual chunk, slot, chunk
        for v, members in enumerate(self.members):
            for p in members:
                for o in range(options.blocks[p]):
                    self.of_sample[self.first[p] + o] = (v, o % self.slots[v], p)

    @staticmethod
    def deal(options: Options, chunks: list[int]) -> list[list[int]]:
        count = len(chunks)
        virtual = -(-count // options.chunks_per_virtual)
        if options.mapping == "consecutive":
            return [
                chunks[v * count // virtual : (v + 1) * count // virtual] for v in range(virtual)
            ]
        return [chunks[v::virtual] for v in range(virtual)]

    def home_of(self, sample: int) -> int:
        return self.home[self.of_sample[sample][0]]

    def places(self, v: int, slot: int) -> int:
        return len(range(slot, self.width[v], self.slots[v]))


class Epoch:
    """The protocol of one epoch, request by request."""

    def __init__(self, options: Options, epoch: int) -> None:
        self.options = options
        self.epoch = epoch
        self.chunks = Chunks(options, epoch)
        count = options.samples
        if options.trace is not None:
            self.trace = options.trace
        elif options.shuffle:
            self.trace = model.permutation(
                count, options.seed, epoch, bijection_from=options.bijection_from
            )
        else:
            self.trace = list(range(count))
        self.batch = options.batch_size * options.world_size
        self.asked = len(self.trace)
        if options.drop_last:
            self.asked -= self.asked % self.batch
        wanted = set(self.trace)
        self.consumed = [sample not in wanted for sample in range(count)]
        self.words = [
            model.Words(options.seed, epoch, CHUNK, v) for v in range(len(self.chunks.members))
        ]
        self.home: dict[tuple[int, int], list[Resident]] = {}
        self.remote: dict[tuple[int, int, int], list[Resident]] = {}
        # Of (requester, home): the slots of all its requests; how many it made; the papers' window.
        self.lists: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.made: dict[tuple[int, int], int] = {}
        self.window: dict[tuple[int, int], list[tuple[int, int] | None]] = {}
        self.window_at: dict[tuple[int, int], int] = {}
        self.repeat = [False] * self.asked
        seen: set[int] = set()
        for g in range(self.asked):
            sample = self.trace[g]
            self.repeat[g] = sample in seen
            seen.add(sample)
            if not self.repeat[g]:
                v, slot, _ = self.chunks.of_sample[sample]
                pair = (g % options.nodes, self.chunks.home[v])
                self.lists.setdefault(pair, []).append((v, slot))
        self.reads: list[Read] = []
        self.counts = dict.fromkeys(
            ["misses", "filled", "remote_reads", "remote_requests", "prefetched"], 0
        )
        self.peak = 0
        self.peak_remote = 0

    def units(self, sample: int) -> int:
        return 1 if self.options.units is None else self.options.units[sample]

    def holders(self) -> list[tuple[int, int, Resident]]:
        """What is in memory, with its home and the node that holds it."""
        home = self.chunks.home
        found = [(home[v], home[v], r) for (v, _), slot in self.home.items() for r in slot]
        for (node, v, _), slot in self.remote.items():
            found += [(home[v], node, r) for r in slot]
        return found

    def arrivals(self, t: int, begin: int, count: int) -> list[int]:
        """The positions of step t, in the order in which their requests come."""
        options = self.options
        if not options.arrival:
            return list(range(begin, begin + count))
        turns = [g % options.nodes for g in range(begin, begin + count)]
        model.shuffle(turns, model.Words(options.seed, self.epoch, CHUNK, ARRIVAL + t))
        waiting = [
            [g for g in range(begin, begin + count) if g % options.nodes == node]
            for node in range(options.nodes)
        ]
        return [waiting[node].pop(0) for node in turns]

    def resident(self) -> list[Resident]:
        held = [r for each in (self.home, self.remote) for slot in each.values() for r in slot]
        return sorted(held, key=lambda r: (r.read, r.sample))

    def draw(self, v: int, n: int) -> int:
        return self.words[v].below(n) if n > 1 else 0

    @staticmethod
    def take(held: list[Resident], index: int) -> Resident:
        taken = held[index]
        held[index] = held[-1]
        held.pop()
        return taken

    def serve(self, g: int) -> Answer:
        options = self.options
        v, slot, _ = self.chunks.of_sample[self.trace[g]]
        node, home = g % options.nodes, self.chunks.home[v]
        pair = (node, home)
        rank = self.made.get(pair, 0)
        self.made[pair] = rank + 1
        if node != home:
            self.counts["remote_reads"] += 1
            held = self.remote.get((node, v, slot), [])
            if held:
                return Answer(g, node, home, self.take(held, self.draw(v, len(held))), held=True)
        held = self.home.setdefault((v, slot), [])
        read = None
        if not held:
            read = len(self.reads)
            self.fill(v, slot)
        answer = self.take(held, self.draw(v, len(held)))
        along: list[Resident] = []
        if node != home:
            self.counts["remote_requests"] += 1
            if options.prefetch > 1:
                along = self.send_along(pair, rank)
        return Answer(g, node, home, answer, read=read, along=along)

    def fillable(self, v: int, p: int, slot: int) -> tuple[list[int], int]:
        """Positions of a chunk for a slot that nobody had yet, and how many find a place."""
        first = self.chunks.first[p]
        positions = [
            o
            for o in range(slot, self.options.blocks[p], self.chunks.slots[v])
            if not self.consumed[first + o]
        ]
        free = self.chunks.places(v, slot) - len(self.home.get((v, slot), []))
        return positions, min(len(positions), free)

    def fill(self, v: int, slot: int) -> None:
        options, slots = self.options, self.chunks.slots[v]
        can = [p for p in self.chunks.members[v] if self.fillable(v, p, slot)[0]]
        if options.refill == "max_fill":
            gain = {p: sum(self.fillable(v, p, x)[1] for x in range(slots)) for p in can}
            can = [p for p in can if gain[p] == max(gain.values())]
            chunk = can[0] if options.ties == "first" else can[self.draw(v, len(can))]
        else:
            chunk = can[self.draw(v, len(can))]
        chosen = []
        for x in [slot] + [x for x in range(slots) if x != slot]:
            positions, wanted = self.fillable(v, chunk, x)
            for i in range(wanted):
                if wanted < len(positions):
                    other = i + self.draw(v, len(positions) - i)
                    positions[i], positions[other] = positions[other], positions[i]
                chosen.append(positions[i])
        largest = max(self.units(sample) for sample in range(options.samples))
        kept: list[int] = []
        used = sum(self.units(r.sample) for r in self.resident())
        for o in chosen:
            sample = self.chunks.first[chunk] + o
            after = used + self.units(sample)
            if options.memory_units and kept and after > options.memory_units - largest:
                continue
            used = after
            kept.append(o)
            self.consumed[sample] = True
            self.home.setdefault((v, o % slots), []).append(Resident(sample, len(self.reads)))
        self.reads.append(Read(chunk, sorted(kept)))
        self.counts["misses"] += 1
        self.counts["filled"] += len(kept)
        self.peak = max(self.peak, used)

    def send_along(self, pair: tuple[int, int], rank: int) -> list[Resident]:
        """Redox, algorithm 5: shift the window, mark the request, look at the ones after it."""
        node, reach = pair[0], self.options.prefetch
        requests = self.lists[pair]
        shift = rank - self.window_at.get(pair, rank - reach)
        marks = self.window.get(pair, [None] * reach)
        marks = (marks[shift:] + [None] * reach)[:reach]
        marks[0] = requests[rank]
        self.window[pair], self.window_at[pair] = marks, rank
        sent: list[Resident] = []
        for i in range(1, min(reach, len(requests) - rank)):
            v, slot = requests[rank + i]
            at_home = self.home.get((v, slot), [])
            conflicts = sum(mark == (v, slot) for mark in marks)
            if marks[i] is not None or conflicts >= self.chunks.places(v, slot) or not at_home:
                continue
            index = self.draw(v, len(at_home))
            held = sum(
                self.units(r.sample)
                for key, residents in self.remote.items()
                for r in residents
                if key[0] == node
            )
            held += self.units(at_home[index].sample)
            if self.options.remote_units and held > self.options.remote_units:
                return sent
            mine = self.remote.setdefault((node, v, slot), [])
            assert len(mine) < self.chunks.places(v, slot)  # what the marks are for
            mine.append(self.take(at_home, index))
            sent.append(mine[-1])
            marks[i] = (v, slot)
            self.counts["prefetched"] += 1
            self.peak_remote = max(self.peak_remote, held)
        return sent

    def steps(self) -> list[Step]:
        options = self.options
        rows = -(-len(self.trace) // options.world_size)
        if options.drop_last:
            rows = self.asked // options.world_size
        ends = range(0, rows, options.batch_size)
        made = []
        for t, row in enumerate(ends):
            step, before = Step(), len(self.reads)
            begin = t * self.batch
            size = min(options.batch_size, rows - row) * options.world_size
            given: dict[int, tuple[int, int]] = {}
            for g in self.arrivals(t, begin, min(size, self.asked - begin)):
                if self.repeat[g]:
                    given[g] = self.trace[g], NO_READ
                else:
                    step.answers.append(self.serve(g))
                    answer = step.answers[-1].answer
                    given[g] = answer.sample, answer.read
            for g in range(self.asked, begin + size):
                again = begin + (g - self.asked) % (self.asked - begin)
                given[g] = given[again][0], NO_READ
            for g in range(begin, begin + size):
                step.deliveries.append((given[g][0], g % options.world_size, given[g][1]))
            step.reads = list(enumerate(self.reads))[before:]
            step.left = self.resident()
            step.holders = self.holders()
            made.append(step)
        made[-1].released = self.resident()
        return made


def stream(options: Options, epochs: int, start: tuple[int, int] = (0, 0)) -> list[str]:
    """What the stream of one rank says, a line for each step: reads, deliveries, releases.

    A read is number:chunk, "!" if it is made again, and the positions kept; a delivery is
    sample/read and a release sample-read. Reads are numbered as the stream issues them.
    """
    lines = []
    issued = 0
    for e in range(start[0], epochs):
        steps = Epoch(options, e).steps()
        reads = {number: read for step in steps for number, read in step.reads}
        number_of: dict[int, int] = {NO_READ: NO_READ}
        enter = start[1] if e == start[0] else 0
        for t in range(enter, len(steps)):
            step = steps[t]
            parts = [f"{e}.{t}"]
            if t == enter and enter > 0:
                left: dict[int, list[int]] = {}
                for r in steps[t - 1].left:
                    left.setdefault(r.read, []).append(r.sample)
                first = Chunks(options, e).first
                for number in sorted(left):
                    number_of[number], issued = issued, issued + 1
                    chunk = reads[number].chunk
                    kept = ",".join(str(sample - first[chunk]) for sample in sorted(left[number]))
                    parts.append(f"{number_of[number]}:{chunk}!{kept}")
            for number, read in step.reads:
                number_of[number], issued = issued, issued + 1
                parts.append(f"{number_of[number]}:{read.chunk}:{','.join(map(str, read.kept))}")
            for sample, rank, n in step.deliveries:
                if rank == options.rank:
                    parts.append(f"{sample}/{number_of[n]}")
            for each in step.answers:
                if each.g % options.world_size != options.rank:
                    parts.append(f"{each.answer.sample}-{number_of[each.answer.read]}")
            parts += [f"{r.sample}-{number_of[r.read]}" for r in step.released]
            lines.append(" ".join(parts))
    return lines
