"""Every combination of the loader's features is right or is refused: docs/combinations.md.

`matrix_cells.py` is the table; `matrix_run.py` runs cells, in processes of its own that the test
may end.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forks import group_readers
from matrix_cells import (
    EXCHANGING,
    EXTRA_REFUSALS,
    EXTRAS,
    FACTORS,
    NODE_FACTORS,
    NODE_REFUSALS,
    PRODUCT,
    REFUSALS,
    Cell,
    Refusal,
    all_parts,
    base_cells,
    covering_cells,
    exchanges,
    extra_cells,
    extra_table,
    listed_cells,
    node_cells,
    page_rows,
    parts_of,
    product,
    refusal,
    whole,
    words,
    written,
)
from matrix_data import Data, write_data
from matrix_run import SERVICE
from rank_scripts import real_packages
from served_objects.object_server import ObjectServer
from test_node_server import service

RUNNER = Path(__file__).parent / "matrix_run.py"
CELL_BOUND_S = 200.0  # of a cell that takes a tenth of a second, on a machine that others use
SOAK_BOUND_S = 12 * 3600.0  # On two free cores it takes one hour.
RUNNERS = 2
FAILURES_MAX = 20  # after so many the rest is not run


SOAK = os.environ.get("HEADRACE_SOAK") == "1"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Row groups are read by forks (forks/group_readers.py); in `make soak` by the command."""
    root = tmp_path_factory.mktemp("matrix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        data = write_data(root)
    with contextlib.ExitStack() as stack:
        objects = stack.enter_context(ObjectServer())
        data.put(objects)
        settings = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in objects.environment().items():
            settings.setenv(name, value)
        served, _ = stack.enter_context(service("--share", "1MiB"))
        settings.setenv(SERVICE, served)
        if not SOAK:
            server = stack.enter_context(group_readers.served(root))
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in server.items():
                patch.setenv(name, value)
        yield data


class Runner:
    """A process that runs cells, one after the other."""

    def __init__(self, data: Data, **env: str) -> None:
        self._errors = (data.root / f"runner-{id(self)}").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(RUNNER), "--serve", str(data.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"XDG_CACHE_HOME": str(data.root / "cache")} | env,
            bufsize=0,
            start_new_session=True,
        )

    def run(self, cell: Cell, bound_s: float = CELL_BOUND_S) -> dict[str, Any]:
        """What the cell gave: samples that came from tiers, and what was wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # It has died: so says its stdout.
            self._process.stdin.write(json.dumps(cell).encode() + b"\n")
        if not select.select([self._process.stdout], [], [], bound_s)[0]:
            self._process.send_signal(signal.SIGUSR1)  # Writes where its threads are.
            select.select([self._process.stdout], [], [], 1)
            return {"uses": 0, "error": f"not done after {bound_s:g} s\n{self._end()}"}
        line = self._process.stdout.readline()
        return dict(json.loads(line)) if line else {"uses": 0, "error": f"died\n{self._end()}"}

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    def _end(self) -> str:
        """What it wrote to stderr."""
        self.close()
        return Path(self._errors.name).read_text(errors="replace")

    def close(self) -> None:
        if not self.ended:
            os.killpg(self._process.pid, signal.SIGKILL)  # A forked rank too.
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            pipe.close()


class Cells:
    """Cells that are run, several at a time; each is made when a runner is free for it.

    After `FAILURES_MAX` failures, after `bound_s` or once the caller was interrupted no more begin.

    Thread safety: everything from any thread.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        bound_s: float = math.inf,
        progress: Callable[[str], None] | None = None,
        every: int = 500,
    ) -> None:
        self._cells, self._progress, self._every = iter(cells), progress, every
        self._began = time.monotonic()
        self._until = self._began + bound_s
        self._lock = threading.Lock()
        self._stopped = False
        self.done = 0
        self.wrong: list[str] = []
        self.uses: Counter[tuple[str, str]] = Counter()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True

    def take(self) -> Cell | None:
        """The next; None: there is none, or no more is to begin."""
        with self._lock:
            if self._stopped or len(self.wrong) >= FAILURES_MAX:
                return None
            cell = next(self._cells, None)
            if cell is not None and time.monotonic() > self._until:
                self._stopped = True
                self.wrong.append(f"stopped after {self.done} cells: the time was over")
                return None
            return cell

    def ran(self, cell: Cell, answer: dict[str, Any]) -> None:
        with self._lock:
            self.done += 1
            self.uses[cell["order"], cell["tiers"]] += answer["uses"]
            if answer["error"] is not None:
                self.wrong.append(f"python {RUNNER} {words(cell)}\n{answer['error']}")
                self._tell(self.wrong[-1])
            if self.done % self._every == 0:
                seconds = time.monotonic() - self._began
                self._tell(f"{self.done} cells in {seconds:.0f} s, {len(self.wrong)} wrong")

    def _tell(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)


def run_all(cells: Cells, data: Data, **env: str) -> Counter[tuple[str, str]]:
    """Runs them, with these variables, and fails with those that are wrong.

    Returns how many samples came from tiers, by order and by tiers.
    """

    def work() -> None:
        runner = Runner(data, **env)
        try:
            while (cell := cells.take()) is not None:
                if runner.ended:
                    runner = Runner(data, **env)
                cells.ran(cell, runner.run(cell))
        finally:
            cells.stop()  # If it failed, the others stop too.
            runner.close()

    with concurrent.futures.ThreadPoolExecutor(RUNNERS) as pool:
        runs = [pool.submit(work) for _ in range(RUNNERS)]
        try:
            for run in concurrent.futures.as_completed(runs):
                run.result()
        finally:
            cells.stop()
    assert not cells.wrong, f"{len(cells.wrong)} cells are wrong:\n\n" + "\n".join(cells.wrong)
    return cells.uses


def seed() -> int:
    """Printed, and settable."""
    number = int(os.environ.get("HEADRACE_SEED", "0"))
    print(f"HEADRACE_SEED={number}")
    return number


@functools.cache
def covering() -> list[Cell]:
    return covering_cells()


# The cells.


def test_every_order_of_all_fields_of_each_format_on_one_and_two_ranks(data: Data) -> None:
    run_all(Cells(base_cells()), data)


@pytest.mark.timeout(600)
def test_every_combination_of_three_values(data: Data) -> None:
    uses = run_all(Cells(covering()), data)
    for order in FACTORS["order"]:
        for tiers in FACTORS["tiers"][1:]:
            assert uses[order, tiers] > 0, f"order={order} took nothing from tiers={tiers}"


def test_jobs_of_two_nodes(data: Data) -> None:
    uses = run_all(Cells(node_cells()), data)
    for order in EXCHANGING:
        assert uses[order, "none"] > 0, f"order={order}: no node sent anything"


@pytest.fixture(scope="module")
def jax() -> Path:
    """Where JAX is, which .venv does not have."""
    return real_packages("jax")


@pytest.mark.timeout(900)  # It may wait for JAX.
def test_arrays_of_jax_of_every_order_and_all_fields(jax: Path, data: Data) -> None:
    """Without a fork: JAX warns of it, as it has threads."""
    path = os.pathsep.join(filter(None, (str(jax), os.environ.get("PYTHONPATH"))))
    run_all(Cells(jax_cells()), data, PYTHONPATH=path, JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu")


def jax_cells() -> Iterator[Cell]:
    for order in FACTORS["order"]:
        for fields in FACTORS["fields"]:
            yield whole({"order": order, "fields": fields}) | {"output": "jax"}
        image = {"order": order, "fields": "several", "transform": "image", "ids": "yes"}
        yield whole(image | {"format": "pack", "run": "resumed"}) | {"output": "jax"}


def drawn(part: Cell, draw: random.Random) -> Cell:
    """The other factors by chance; refused only if `part` is."""
    others = [factor for factor in FACTORS if factor not in part]
    while True:
        cell = whole(part | {factor: draw.choice(FACTORS[factor]) for factor in others})
        if refusal(cell) is None or refusal(part) is not None:
            return cell


def drawn_cells(first_seed: int, count: int) -> Iterator[Cell]:
    """`count` cells of the product, none twice, in an order that the seed decides."""
    parts = list(product(PRODUCT))
    for number in random.Random(first_seed).sample(range(len(parts)), count):
        yield drawn(parts[number], random.Random(f"{first_seed}-{number}"))


@pytest.mark.skipif(not SOAK, reason="takes hours: make soak")
@pytest.mark.timeout(0)
def test_the_full_product(data: Data, capsys: pytest.CaptureFixture[str]) -> None:
    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\nmatrix: {text}", end="", flush=True)

    whole_count = math.prod(len(FACTORS[factor]) for factor in PRODUCT)
    count = int(os.environ.get("HEADRACE_CELLS", whole_count))
    first_seed = seed()
    tell(f"{count} of {whole_count} cells from HEADRACE_SEED={first_seed}")
    run_all(Cells(drawn_cells(first_seed, count), SOAK_BOUND_S, tell), data)


def test_a_cell_that_hangs_or_dies_is_told(data: Data) -> None:
    runner = Runner(data)
    assert "not done after 0 s" in runner.run(whole({}), bound_s=0)["error"]
    assert runner.ended
    runner = Runner(data)
    assert "KeyError: 'ranks'" in runner.run({"order": "exact"})["error"]
    runner.close()
    with pytest.raises(AssertionError, match="1 cells are wrong"):
        run_all(Cells([{"order": "exact", "tiers": "none"}]), data)


def test_a_cell_is_made_when_it_is_taken() -> None:
    made = []
    cells = Cells({"order": made.append(number) or "exact"} for number in range(9))
    assert made == []
    cells.take()
    assert made == [0]


def test_no_cell_begins_after_many_failures_or_the_end_of_the_time_or_an_interrupt() -> None:
    cell = whole({})
    told: list[str] = []
    failing = Cells([cell] * 99, progress=told.append, every=5)
    while failing.take() is not None:
        failing.ran(cell, {"uses": 1, "error": "no"})
    assert failing.done == len(failing.wrong) == FAILURES_MAX
    assert failing.uses["exact", "none"] == FAILURES_MAX
    assert sum("wrong" in line for line in told) == FAILURES_MAX // 5
    assert f"{words(cell)}\nno" in told[0]
    late = Cells([cell], bound_s=-1)
    assert late.take() is None
    assert "stopped after 0 cells" in late.wrong[0]
    stopped = Cells([cell])
    stopped.stop()
    assert stopped.take() is None


def test_a_seed_draws_the_same_cells_again() -> None:
    assert list(drawn_cells(3, 9)) == list(drawn_cells(3, 9)) != list(drawn_cells(4, 9))


# The table.


def test_the_cells_have_every_combination_of_three_values() -> None:
    cells = covering()
    accepted: set[Any] = set()
    refused: set[Any] = set()
    for cell in cells:
        assert list(cell) == list(FACTORS)
        (accepted if refusal(cell) is None else refused).update(parts_of(cell))
    for triple in all_parts():
        is_refused = any(row.applies(dict(triple)) for row in REFUSALS)
        assert triple in (refused if is_refused else accepted), triple
    assert len(cells) < 600


def test_what_leaves_samples_out_is_crossed_with_all_factors(data: Data) -> None:
    run_all(Cells(listed_cells()), data)


def test_what_is_given_besides_the_factors_is_crossed_with_orders_ranks_workers_and_resumes(
    data: Data,
) -> None:
    run_all(Cells(extra_cells()), data)


def test_the_extra_cells_have_every_order_and_are_few() -> None:
    cells = list(extra_cells())
    for extra in EXTRAS:
        accepted = [each for each in cells if extra.items() <= each.items() and not refusal(each)]
        table = extra_table(extra)
        for factor in ("order", "ranks", "workers", "draw", "drop_last"):
            assert {each[factor] for each in accepted} == set(table[factor]), (extra, factor)
        assert "resumed" in {each["run"] for each in accepted}
    assert len(cells) < 240


def test_a_small_table_is_covered_by_what_its_largest_factors_need() -> None:
    table = dict.fromkeys("abcd", ("0", "1"))
    assert len(covering_cells(table, ())) <= 12
    assert len(covering_cells({name: table[name] for name in "abc"}, ())) == 8
    refused = (Refusal({"a": ("1",), "b": ("1",)}, "no"),)
    cells = covering_cells(table, refused)
    assert {t for cell in cells for t in parts_of(cell)} == set(all_parts(table))


def test_every_refusal_is_reached_alone() -> None:
    """So that each message is seen, and no row is hidden by one above it."""
    alone = [[each for each in REFUSALS if each.applies(cell)] for cell in covering()]
    assert all([row] in alone for row in REFUSALS)


def test_the_cells_of_two_nodes_have_every_value_and_every_refusal() -> None:
    cells = list(node_cells())
    accepted = [cell for cell in cells if refusal(cell) is None]
    for factor, values in NODE_FACTORS.items():
        assert {cell[factor] for cell in accepted} == set(values)
    sent = [cell for cell in accepted if exchanges(cell)]
    for each in all_parts({name: NODE_FACTORS[name] for name in ("fields", "format")}, 2):
        assert any(set(each) <= cell.items() for cell in sent), each
    for order in EXCHANGING:
        for factor in ("fields", "format", "ranks", "drop_last", "transform", "run"):
            found = {cell[factor] for cell in sent if cell["order"] == order}
            assert found == set(NODE_FACTORS[factor]), f"{order}: {factor}"
    alone = [[each for each in NODE_REFUSALS if each.applies(cell)] for cell in cells]
    assert all([row] in alone for row in NODE_REFUSALS)
    assert len(cells) < 130


def test_the_page_lists_the_factors_and_what_is_refused() -> None:
    factors = [(factor, ", ".join(values)) for factor, values in FACTORS.items()]
    assert page_rows("factor") == factors
    assert page_rows("cells") == written(REFUSALS)
    assert page_rows("cells of extras") == written(EXTRA_REFUSALS)
    own = [
        (factor, ", ".join(values))
        for factor, values in NODE_FACTORS.items()
        if values != FACTORS[factor]
    ]
    assert page_rows("factor of two nodes") == own
    more = [row for row in NODE_REFUSALS if row not in REFUSALS]
    assert page_rows("cells of two nodes") == written(more)
