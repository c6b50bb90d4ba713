"""The core's batches, epoch after epoch, which `Loader` converts for its user.

`BatchFeed` is the part of a loader that adapters to other libraries use; `EpochFeed` implements it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, Self

from headrace import _core
from headrace._arguments import integer
from headrace._dataset import Dataset, Mixture
from headrace._loading.arguments import tiers_in_trouble, warn_of_held_batches
from headrace._loading.content import Content
from headrace._loading.cursor import Cursor, Place
from headrace._loading.options import EPOCHS_MAX, Resolved
from headrace._loading.sampling import EpochPlan, SamplerSource
from headrace._loading.session import Session
from headrace._loading.state import check_state, make_state, order_parameters_to_adopt
from headrace._nodes.process import NodePlace
from headrace._process.at_exit import open_at_exit
from headrace._process.interrupts import interrupt_soon
from headrace._process.tracebacks import release
from headrace._workers import Core
from headrace._workers._options import Native
from headrace.errors import FailedPreconditionError, InternalError, InvalidArgumentError
from headrace.formats._files.images import advise_on_decoding


@dataclass(frozen=True)
class Delivered:
    """The form in which a loader delivers samples."""

    kinds: Mapping[str, str]
    """Names of the fields, in their order."""
    schema: Sequence[tuple[str, str, tuple[int, ...], bool]]
    """Name, type, shape of a row and raggedness of each field."""
    native: Native | None
    """The transform that the core applies."""
    ids: bool
    """Whether the sample's number is an additional field."""
    python: bool
    """Whether functions of the user run on batches."""
    seed: int
    keys: Sequence[str] | None = None
    """The names of the fields in batches that are dicts; None: these are named tuples."""

    @classmethod
    def by(
        cls, schema: Sequence[tuple[str, str, tuple[int, ...], bool]], resolved: Resolved
    ) -> Self:
        """As the arguments of a loader say; `schema`: of its core."""
        return cls(
            resolved.kinds,
            schema,
            resolved.native,
            resolved.output.ids,
            resolved.python is not None,
            resolved.options.seed,
            resolved.keys,
        )


@dataclass(frozen=True)
class CoreOrder:
    """The order of a core session, which plans all ranks that share an engine."""

    chosen: dict[str, int | str]
    """Parameters that the user gave; a state must have the same values."""
    parameters: dict[str, int | str]
    """All parameters, with defaults."""
    expected_inflation: dict[str, float | None] | None
    steps: int
    """Steps of an epoch without a sampler."""
    place: NodePlace | None
    """This rank's place at its node process; None: the engine is in this process."""

    @classmethod
    def of(cls, session: Session, chosen: dict[str, int | str]) -> Self:
        core = session.core
        parameters, steps = core.order_parameters, core.steps_per_epoch
        return cls(chosen, parameters, core.expected_inflation, steps, session.place)


class BatchFeed(Protocol):
    """The batches and the position of a loader. `feed_of(loader)` gives it.

    Thread safety: as `Loader`.
    Ownership: the loader owns its feed. An iteration keeps its feed.
    """

    dataset: Dataset
    source: SamplerSource | None
    """The sampler's passes; None: the core's order."""
    delivers: Delivered
    order: CoreOrder
    cursor: Cursor[EpochPlan]
    """The position. Only the feed changes it."""

    def __len__(self) -> int:
        """Batches of an epoch."""

    @property
    def options(self) -> _core.LoaderOptions:
        """What the core was opened with. Nothing changes them; others may take their place."""

    @property
    def shares(self) -> int:
        """The number of ranks that share the samples."""

    def check_open(self) -> None:
        """Raises FailedPreconditionError if the loader is closed."""

    def iterate(self, present: Callable[[Any], Any], base_seed: bool = True) -> Iterator[Any]:
        """Begins the next epoch, and ends the iteration before. `present` converts the core's
        batches.

        `base_seed` is false if torch's DataLoader wraps this loader: DataLoader draws the seed
        then.
        """

    def set_epoch(self, epoch: int, *, of_new_loader: bool = False) -> None:
        """As `Loader.set_epoch`. `of_new_loader`: only if nothing was given or loaded yet."""

    def end_pass(self) -> None:
        """Ends the newest iteration and its epoch, of which the sampler drew everything."""

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`."""

    def state_at(self, place: Place[EpochPlan]) -> dict[str, Any]:
        """The state before `place`, which may be the end of an epoch."""

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """As `Loader.load_state_dict`."""

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """As `Loader.set_weights`."""

    def close(self) -> None:
        """Closes the loader; batches that the user holds stay valid."""


class EpochFeed:
    """A `BatchFeed`: a core session, the position in its run, and a sampler if there is one.

    Thread safety: as `Loader`.
    Ownership: owns the session. An iteration keeps its feed.
    Shutdown: `close`, the end of the last reference, or the interpreter's exit.
    """

    _closed = True  # Until there is an open session.

    def __init__(
        self, dataset: Dataset, session: Session, resolved: Resolved, delivers: Delivered
    ) -> None:
        """Takes over `session`."""
        self.dataset = dataset
        self._content = Content(dataset.index, dataset.nesting.stored_names)
        self._session = session
        self.source = resolved.source
        self.delivers = delivers
        self._ranks = resolved.ranks
        self._at_close: list[Callable[[], None]] = []
        self._closed = False
        open_at_exit.add(self)
        self.order = CoreOrder.of(session, dict(self.options.order.parameters))
        self.cursor: Cursor[EpochPlan] = Cursor(self.order.steps)
        self._warned = False
        self._troubled: set[str] = set()  # tiers that the user was warned about

    @property
    def core(self) -> Core:
        return self._session.core

    @property
    def options(self) -> _core.LoaderOptions:
        """As `BatchFeed.options`."""
        return self._session.options

    @property
    def shares(self) -> int:
        """The number of ranks that share the samples."""
        return self.options.world_size if self.source is None else self.source.shares

    def __len__(self) -> int:
        return self.order.steps if self.source is None else len(self.source)

    def iterate(self, present: Callable[[Any], Any], base_seed: bool = True) -> Iteration:
        """As `BatchFeed.iterate`."""
        self.check_open()
        self._ranks.check()
        start = self.cursor.start()
        self._check_epoch(start.epoch)
        self._start_core(start, base_seed)
        self.cursor.begin(start.epoch, start.step)
        return Iteration(self, self.cursor.iteration, present)

    def _check_epoch(self, epoch: int) -> None:
        if epoch >= self.options.epochs:
            raise FailedPreconditionError(
                f"iterating epoch {epoch}: the loader was made for "
                f"epochs={self.options.epochs}; raise it, leave it out, or go back with set_epoch()"
            )

    def _start_core(self, start: Place[EpochPlan], base_seed: bool) -> None:
        """Starts the core at `start`, unless it gives that batch next anyway."""
        if self.source is not None:
            plan = start.plan
            if plan is None or plan.sampler_epoch != self.source.epoch:
                self._leave_pass()
                plan = self.source.next_plan(base_seed)
                self.cursor.drew(plan)
            self._make_room(plan.largest_batch)
            self.core.start_list(plan.ids, plan.batch_ends, start.epoch, start.step)
        elif not self.cursor.continues(start.epoch, start.step):
            self.cursor.lose_supply()  # The run before has ended, even if this start fails.
            self.core.start(start.epoch, start.step)

    def _leave_pass(self) -> None:
        """Tells the sampler how far the loop has come in an epoch that it leaves."""
        at = self.cursor.at
        if self.source is not None and at.plan is not None and self.source.restored is None:
            self.source.leave(at.plan, at.step)

    def _make_room(self, largest_batch: int) -> None:
        """Divides the memory again if a batch sampler gives larger batches than expected."""
        if largest_batch > self.options.batch_size:
            self._reopen(self.options.replace(job={"batch_size": largest_batch}))

    def _reopen(self, options: _core.LoaderOptions) -> None:
        """Opens a core with these options, or again with the former ones if that fails."""
        self.cursor.stop()  # Also after an error: the core that gave the batches is gone.
        self.cursor.lose_supply()
        self._session.reopen(options, self.close)

    def _take(self, iteration: int) -> Any:
        """Returns the next batch of an iteration; raises StopIteration at its end."""
        self.check_open()
        if iteration != self.cursor.iteration:
            raise FailedPreconditionError(
                "this iteration of the loader is over: a newer one was begun; a loader has one "
                "iteration at a time; make a second loader to iterate twice at once"
            )
        if self.cursor.at.plan is not None and self.cursor.is_over():
            self.cursor.end_epoch()
            raise StopIteration
        try:
            at = self.cursor.at
            if at.plan is None and not self.cursor.continues(at.epoch, at.step):
                self.core.start(at.epoch, at.step)  # `set_weights` has opened another one.
            batch = self.core.next()
        except BaseException:
            self.cursor.lose_supply()
            raise
        if batch is None:
            raise InternalError("the run ended before its last epoch")
        self.cursor.gave(batch.epoch, batch.step, batch.ends_epoch)
        if batch.beyond_budget and not self._warned:
            self._warned = True
            warn_of_held_batches(self.core)
        if self.options.tier_count:
            tiers_in_trouble(self.core, self._troubled)
        return batch

    def _ended(self, iteration: int) -> bool:
        """Whether all batches of an iteration were taken; if so, ends its epoch."""
        cursor = self.cursor
        if iteration != cursor.iteration or not cursor.at.step or not cursor.is_over():
            return False
        cursor.end_epoch()
        return True

    def _left(self, iteration: int) -> int:
        """Batches that an iteration still gets."""
        cursor = self.cursor
        if iteration != cursor.iteration:
            return 0
        return max(0, cursor.length(cursor.at.plan) - cursor.at.step)

    def _leave(self, iteration: int) -> None:
        """Called when an iteration is dropped early: drops the batches read ahead for it."""
        if not self._closed and self.cursor.leave(iteration):
            self.core.stop()
            if self.cursor.start().plan is None:  # Else the next iteration repeats it.
                self._leave_pass()

    def set_epoch(self, epoch: int, *, of_new_loader: bool = False) -> None:
        """As `Loader.set_epoch`. With `of_new_loader` only a loader that has given no batch takes
        the epoch, for the iteration that has begun, too. Any other counts its epochs itself."""
        epoch = integer("epoch", epoch, 0, EPOCHS_MAX - 1)
        if of_new_loader:
            is_new = self.cursor.at[:2] == (0, 0) and self.cursor.decided is None
            if self.source is None and is_new and epoch > 0:
                self._check_epoch(epoch)
                self._start_core(Place(epoch, 0), base_seed=False)
                self.cursor.begin(epoch, 0, again=True)
            return
        keeps_place = self.cursor.go_to(epoch)
        if self.source is None:
            return
        if not keeps_place:
            self.source.restored = None
        if self.cursor.start().step == 0:
            self.source.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`."""
        if self.source is not None and self.source.restored is not None:
            return dict(self.source.restored)
        return self.state_at(self.cursor.saved())

    def state_at(self, place: Place[EpochPlan]) -> dict[str, Any]:
        """The state before `place`, which may be the end of an epoch."""
        if place.step and place.step >= self.cursor.length(place.plan):
            place = Place(place.epoch + 1, 0)
        return make_state(
            self.dataset, self._content, self.options, place, self.source, self.order.parameters
        )

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """As `Loader.load_state_dict`."""
        epoch, step = check_state(
            state, self.dataset, self._content, self.options, self.source, strict
        )
        if (epoch, step) > (self.options.epochs, 0):
            raise FailedPreconditionError(
                f"state: of epoch {epoch}, but the loader was made for "
                f"epochs={self.options.epochs}; raise it, or leave it out"
            )
        if self.source is None and step >= self.order.steps:
            raise InvalidArgumentError(
                f"state: step {step} of epoch {epoch}, but an epoch has {self.order.steps} steps: "
                "give what state_dict() gave, unchanged"
            )
        self._adopt(order_parameters_to_adopt(state, self.order.chosen, self.order.parameters))
        self.cursor.restore(epoch, step)
        if self.source is not None:
            self.source.restore(state)

    def _adopt(self, parameters: dict[str, int | str]) -> None:
        """Uses these parameters of the order from now on; all names are known."""
        if parameters == self.order.parameters:
            return
        order = self.options.order.with_parameters(parameters)
        self._reopen(self.options.replace(order=order))
        self.order = CoreOrder.of(self._session, self.order.chosen)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """As `Loader.set_weights`."""
        self.check_open()
        if not isinstance(self.dataset, Mixture):
            raise InvalidArgumentError(
                f"set_weights: {self.dataset.path} is no mixture; make one with headrace.mix"
            )
        at, ends = self.cursor.saved(), self.order.steps
        epoch, step = (at.epoch + 1, 0) if at.step and at.step >= ends else (at.epoch, at.step)
        global_batch = self.options.batch_size * self.options.world_size
        changed = self.dataset.changed(epoch, step * global_batch, weights)
        options = self.options.replace(order=self.options.order.of_mixture(changed.core))
        self.cursor.lose_supply()
        self._session.reopen(options, self.close)
        self.dataset = changed
        self.order = CoreOrder.of(self._session, self.order.chosen)
        self.cursor.lose_supply(self.order.steps)

    def check_open(self) -> None:
        if self._closed:
            _core.stop_at_exit()  # A daemon thread at the interpreter's exit raises nothing.
            raise FailedPreconditionError("the loader is closed; make another one")

    def at_close(self, then: Callable[[], None]) -> None:
        """Registers a function that runs after the session was closed."""
        self._at_close.append(then)

    def end_pass(self) -> None:
        """As `BatchFeed.end_pass`."""
        self.cursor.stop()
        self.cursor.lose_supply()
        self.core.stop()
        self.cursor.end_epoch()

    def close(self) -> None:
        """Closes the session; batches that the user holds stay valid."""
        if not self._closed:
            self._closed = True
            open_at_exit.discard(self)
            with ExitStack() as then:  # Also after Ctrl-C, which shortens the wait.
                then.callback(self._session.close_workers)
                for function in self._at_close:
                    then.callback(function)
                self._session.close()  # First: a monitor's thread may wait for its answer.

    def __del__(self) -> None:
        self.close()


class Iteration(Iterator[Any]):
    """One iteration of a feed."""

    def __init__(self, feed: EpochFeed, iteration: int, present: Callable[[Any], Any]) -> None:
        self._feed = feed
        self._iteration = iteration
        self._present = present
        self._done = False
        self._lock = threading.Lock()  # Threads that share the iteration get each batch once.

    def __len__(self) -> int:
        """Batches that are still to come, also of a sampler without a length: its epoch began."""
        return 0 if self._done else self._feed._left(self._iteration)

    def __next__(self) -> Any:
        try:
            with self._lock:
                return self._take()
        except StopIteration:
            raise
        except BaseException as error:
            dataset = self._feed.dataset
            advise_on_decoding(error, dataset.format_row.command_words(dataset.path))
            release(error)
            del self  # The traceback keeps this frame.
            raise

    def _take(self) -> Any:
        if self._done:
            raise StopIteration
        if self._feed._ended(self._iteration):
            self._done = True
            raise StopIteration
        try:
            return self._present(self._feed._take(self._iteration))
        except BaseException:
            self._done = True
            self._feed._leave(self._iteration)
            raise

    def __del__(self) -> None:
        if not self._done:
            try:
                self._feed._leave(self._iteration)
            except KeyboardInterrupt:
                interrupt_soon()
