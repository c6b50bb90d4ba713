"""One node's stream of the order `redox`, where nodes exchange samples: docs/orders.md, slowly."""

from __future__ import annotations

from redox_model import NO_READ, Chunks, Epoch, Options, Resident, Step


class NodeStream:
    """One node's lines, where each home reads its own chunks and sends what others ask for.

    A line has, in this order: reads, as number:first+count and the positions kept, ":" or, if made
    again, "!" between; a parcel that comes is number<home.parcel:samples; deliveries and releases,
    as in `stream`; a parcel that goes is >node.number, or >>node.number if it goes ahead, and its
    samples, each sample-read.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.node = options.rank // options.ranks
        self.issued = 0
        self.to: dict[int, int] = {}  # parcels, by node
        self.come: dict[int, int] = {}  # parcels, by home
        self.number_of: dict[int, int] = {}  # of samples in memory here
        self.reads: list[str] = []
        self.parcels: list[tuple[int, int, str, str]] = []

    def read(self, first: int, count: int, kept: list[int], mark: str = ":") -> None:
        positions = ",".join(map(str, sorted(kept)))
        self.reads.append(f"{self.issued}:{first}+{count}{mark}{positions}")
        for o in kept:
            self.number_of[first + o] = self.issued
        self.issued += 1

    def send(self, home: int, node: int, samples: list[int], mark: str = ">") -> None:
        samples = sorted(samples)
        if home == self.node:
            sent = ",".join(f"{s}-{self.number_of.pop(s)}" for s in samples)
            self.parcels.append((node, self.to.get(node, 0), sent, mark))
            self.to[node] = self.to.get(node, 0) + 1
        if node == self.node:
            parcel = self.come.get(home, 0)
            self.come[home] = parcel + 1
            self.reads.append(f"{self.issued}<{home}.{parcel}:{','.join(map(str, samples))}")
            self.number_of.update(dict.fromkeys(samples, self.issued))
            self.issued += 1

    def enter(self, chunks: Chunks, holders: list[tuple[int, int, Resident]]) -> None:
        held: dict[tuple[int, int], list[int]] = {}
        for home, node, resident in holders:
            held.setdefault((home, node), []).append(resident.sample)
        away = sorted(pair for pair in held if pair[0] != pair[1])
        for home, node in [*away, (self.node, self.node)]:
            samples = sorted(held.get((home, node), []))
            if home == self.node:
                for chunk in sorted({chunks.of_sample[s][2] for s in samples}):
                    first = chunks.first[chunk]
                    kept = [s - first for s in samples if chunks.of_sample[s][2] == chunk]
                    self.read(first, self.options.blocks[chunk], kept, "!")
            if home != node:
                self.send(home, node, samples)

    def line(self, e: int, t: int, rows: int, epoch: Epoch, step: Step) -> str:
        """The line of a step of `rows` rows, after the reads and parcels of entering, if any."""
        options, nodes = self.options, self.options.nodes
        begin = t * epoch.batch
        given: dict[tuple[int, int], str] = {}

        def deliver(g: int, sample: int, read: int) -> None:
            rank = g % nodes * options.ranks + g // nodes % options.ranks
            given[rank, (g - begin) // options.world_size] = f"{sample}/{read}"

        for each in step.answers:
            if each.read is not None and each.home == self.node:
                read = epoch.reads[each.read]
                first = epoch.chunks.first[read.chunk]
                self.read(first, options.blocks[read.chunk], read.kept)
            sample = each.answer.sample
            if each.home != each.node and not each.held:
                along = [r.sample for r in each.along]
                if options.framing == "split":
                    self.send(each.home, each.node, [sample])
                    if along:
                        self.send(each.home, each.node, along, ">>")
                else:
                    self.send(each.home, each.node, [sample, *along])
            if each.node == self.node:
                deliver(each.g, sample, self.number_of.pop(sample))
        for g in range(max(epoch.asked, begin), begin + rows * options.world_size):
            sample, node = step.deliveries[g - begin][0], g % nodes
            home = epoch.chunks.home_of(sample)
            if home == node == self.node:
                deliver(g, sample, NO_READ)
            if home == node:
                continue
            if home == self.node:
                self.read(sample, 1, [0])
            self.send(home, node, [sample])
            if node == self.node:
                deliver(g, sample, self.number_of.pop(sample))
        parts = [f"{e}.{t}", *self.reads, *(given[key] for key in sorted(given))]
        mine = {r.sample for _, node, r in step.holders if node == self.node}
        for r in step.released:
            if r.sample in mine:
                parts.append(f"{r.sample}-{self.number_of.pop(r.sample)}")
        parts += [
            f"{mark}{node}.{number}:{sent}" for node, number, sent, mark in sorted(self.parcels)
        ]
        self.reads, self.parcels = [], []
        return " ".join(parts)


def node_stream(options: Options, epochs: int, start: tuple[int, int] = (0, 0)) -> list[str]:
    """The lines of the node of `options.rank`, in a job whose nodes exchange samples."""
    made = NodeStream(options)
    lines = []
    for e in range(start[0], epochs):
        epoch = Epoch(options, e)
        steps = epoch.steps()
        enter = start[1] if e == start[0] else 0
        if enter > 0:
            made.enter(epoch.chunks, steps[enter - 1].holders)
        for t in range(enter, len(steps)):
            rows = len(steps[t].deliveries) // options.world_size
            lines.append(made.line(e, t, rows, epoch, steps[t]))
    return lines
