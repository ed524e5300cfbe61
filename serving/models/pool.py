"""The pool of models: a cold model is loaded for its first request, and others are unloaded to keep a bound of memory.

The least recently used models are unloaded first, never one that is pinned or has requests in flight. One model is
loaded or checked at a time, so that the cores stay with the callers of loaded models. All callers of a cold model wait
for one load.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

from lingon.errors import Draining, Expired, ModelMemoryFull, ModelNotLoadable, ModelTooLarge, RequestError
from lingon.serving.models.memory import MIB, release_memory
from lingon.serving.models.registry import Loaded, ModelRegistry, ServedModel
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import Metrics
from lingon.serving.threads import ShortTurns, run_in_thread

FAILURE_SECONDS = 10.0  # seconds for which a failure to load a model is the answer of all its requests
CALM_SECONDS = 1.0  # seconds without a request for a loaded model until a load may use all cores
ROOM_SECONDS = 10.0  # seconds that a load waits for requests in flight in other models to end
MOST_LOADED = math.inf  # bytes; no bound

logger = logging.getLogger(__name__)


class Held(Protocol):
    """A loaded model, for the decision which models are unloaded."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def last_use(self) -> int: ...


HeldT = TypeVar("HeldT", bound=Held)
Result = TypeVar("Result")


def to_unload(need: int, bound: float, kept: int, idle: Iterable[HeldT]) -> list[HeldT] | None:
    """Return the models to unload so that a model fits, the least recently used first, or None if it does not fit yet.

    need: bytes of the model
    bound: most bytes of all loaded models
    kept: bytes of loaded models that cannot be unloaded now
    idle: the other loaded models
    """
    chosen = sorted(idle, key=lambda model: model.last_use)
    free = bound - kept - need - sum(model.memory_bytes for model in chosen)
    if free + sum(model.memory_bytes for model in chosen) < 0:
        return None
    unloaded: list[HeldT] = []
    for model in chosen:
        if free >= 0:
            break
        free += model.memory_bytes
        unloaded.append(model)
    return unloaded


class Failure(NamedTuple):
    """A failed load; until: end of the time in which it is the answer, on the clock of the pool."""

    cause: str
    until: float


class ModelPool:
    """The loads and unloads of listed models on request. Belongs to the event loop. Slow work runs in threads."""

    def __init__(
        self,
        registry: ModelRegistry,
        metrics: Metrics,
        bound: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """bound: most bytes of all loaded models, or None without one; clock: returns seconds."""
        self._registry, self._metrics, self._clock = registry, metrics, clock
        self._bound = MOST_LOADED if bound is None else bound
        self._loads: dict[ServedModel, asyncio.Task[None]] = {}
        self._failures: dict[ServedModel, Failure] = {}
        self._completions: dict[ServedModel, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()  # of the only load, or part of the checks that follow one
        self._uses = count(1)
        self._latest_use = -math.inf  # of models that are all loaded, on the clock
        self._closing = asyncio.Event()
        metrics.model_memory_limit.set(bound or 0)

    @property
    def busy(self) -> bool:
        """Whether a model is being loaded or checked."""
        return bool(self._loads or self._completions)

    @property
    def loading(self) -> Collection[ServedModel]:
        """The models that are being loaded or wait for it."""
        return self._loads.keys()

    @property
    def failed(self) -> frozenset[str]:
        """The labels of the models whose load failed a short time ago, so that their requests are refused."""
        now = self._clock()
        self._failures = {model: failure for model, failure in self._failures.items() if now < failure.until}
        return frozenset(model.label for model in self._failures)

    def close(self) -> None:
        """Refuse all requests that wait for a load, because the server shuts down."""
        self._closing.set()

    def touch(self, models: Iterable[ServedModel]) -> bool:
        """Record a request for models, and return whether all of them are loaded."""
        loaded = True
        for model in models:
            model.last_use = next(self._uses)
            loaded = loaded and model.is_loaded
        if loaded:
            self._latest_use = self._clock()
        return loaded

    async def load_all(self, models: Sequence[ServedModel], deadline: float | None = None) -> None:
        """Return when all models of a request are loaded. The request must be in flight in them.

        deadline: on the clock of `time.monotonic`

        Raises Expired at the deadline, ModelTooLarge, ModelMemoryFull, ModelNotLoadable, and Draining at shutdown. The
        loads continue after the deadline, because other requests may wait for them.
        """
        self._check_fit(models)
        cold = [model for model in models if not model.is_loaded]
        for model in cold:
            self._check_failure(model)
        loads = [self._load_of(model) for model in cold]
        closing = asyncio.create_task(self._closing.wait())
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0)):
                for load in loads:
                    await asyncio.wait({load, closing}, return_when=asyncio.FIRST_COMPLETED)
                    if not load.done():
                        raise Draining("the server is shutting down; try again")
                    load.result()
        except TimeoutError:
            names = ", ".join(model.label for model in cold)
            raise Expired(f"the deadline passed while {names} was being loaded") from None
        finally:
            closing.cancel()

    def _load_of(self, model: ServedModel) -> asyncio.Task[None]:
        """Return the task that loads a model, which all its callers share."""
        task = self._loads.get(model)
        if task is None:
            task = self._loads[model] = asyncio.create_task(self._load(model))
            task.add_done_callback(partial(self._on_loaded, model))
            self._count_states()
        return task

    def _on_loaded(self, model: ServedModel, task: asyncio.Task[None]) -> None:
        del self._loads[model]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, in case all callers have left
        self._count_states()

    async def _load(self, model: ServedModel) -> None:
        async with self._turn:
            self._failures.pop(model, None)
            await self._make_room(model)
            begin = self._clock()
            try:
                load = partial(self._registry.load_listed, model.bundle, one_thread=self._serves_callers)
                loaded = await self._in_background(load)
            except Exception as error:
                raise self._failed(model, error) from None
            if model.stopped or self._closing.is_set():  # it was unloaded meanwhile, or the server shuts down
                await self._discard(loaded)
                raise Draining(f"{model.label} was unloaded before it was loaded; try again")
            model.become_loaded(loaded)
            self._complete(model, loaded)
            self._metrics.pool_loads.labels("loaded").inc()
            self._metrics.pool_load_duration.observe(self._clock() - begin)

    async def load_new(self, model: ServedModel) -> None:
        """Load a model that is not in the catalog, beside the others. Raises the errors of its load."""
        self._check_fit([model])
        async with self._turn:
            await self._make_room(model)
            loaded = await self._in_background(partial(self._registry.load_listed, model.bundle, one_thread=True))
            parts = self._registry.complete(loaded)
            try:
                while await self._in_background(partial(next, parts, False)):
                    pass
            except Exception:
                await self._discard(loaded)
                raise
            model.become_loaded(loaded)

    @property
    def _serves_callers(self) -> bool:
        """Whether callers of loaded models need the cores: a request is in flight, or one was a short time ago."""
        loaded = (each for each in self._all() if each.is_loaded)
        return any(each.in_flight.count for each in loaded) or self._clock() - self._latest_use < CALM_SECONDS

    async def _in_background(self, work: Callable[[], Result]) -> Result:
        """Return the result of a load, or of checks."""
        with ShortTurns():
            return await run_in_thread(work, "loading")

    async def _discard(self, loaded: Loaded) -> None:
        """End the engine of a model that will not be served."""
        await asyncio.to_thread(loaded.translator.engine.stop, 0)
        self._metrics.forget(loaded.metrics)

    def _complete(self, model: ServedModel, loaded: Loaded) -> None:
        """Begin the checks that follow a load on demand, while the model serves. If one fails, it is unloaded.

        If it is unloaded for another reason before its turn, they do not take place.
        """
        task = self._completions[model] = asyncio.create_task(self._completed(model, loaded))
        task.add_done_callback(lambda _: self._completions.pop(model, None))

    async def _completed(self, model: ServedModel, loaded: Loaded) -> None:
        try:
            parts, more = self._registry.complete(loaded), True
            while more:
                async with self._turn:  # a load that waits comes first, and another load after each part
                    more = await self._in_background(partial(next, parts, False))
        except Exception as error:
            if not model.stopped:  # otherwise it has left the catalog
                self._failed(model, error)
                await self._unload(model, while_used=True)

    def _failed(self, model: ServedModel, error: Exception) -> RequestError:
        """Remember and log a failure, and return the error for callers. The reason may name paths of the server."""
        self._failures[model] = Failure(type(error).__name__, self._clock() + FAILURE_SECONDS)
        self._metrics.pool_loads.labels("failed").inc()
        if isinstance(error, OSError | MemoryError) or type(error).__module__.startswith("lingon."):
            event(logger, logging.ERROR, "a model cannot be loaded", model=model.label, reason=str(error))
        else:
            fault(logger, "a model cannot be loaded", error, model=model.label)
        return self._error_of(model)

    def _check_failure(self, model: ServedModel) -> None:
        failure = self._failures.get(model)
        if failure is not None and self._clock() < failure.until:
            raise self._error_of(model)

    def _error_of(self, model: ServedModel) -> ModelNotLoadable:
        failure = self._failures[model]
        left = max(failure.until - self._clock(), 0.0)
        return ModelNotLoadable(
            f"model {model.label} cannot be loaded ({failure.cause}, see the server's log); the next attempt is in "
            f"{left:.0f} s",
            left,
        )

    def _check_fit(self, models: Sequence[ServedModel]) -> None:
        """Raise ModelTooLarge if the models of a request can never be loaded together beside the pinned ones."""
        need = sum(model.memory_bytes for model in {*models} if not model.pinned)
        pinned = sum(model.memory_bytes for model in self._all() if model.pinned)
        if pinned + need > self._bound:
            names = " and ".join(model.label for model in models)
            beside = f" beside {_mib(pinned)} MiB of pinned models" if pinned else ""
            raise ModelTooLarge(
                f"model {names} needs {_mib(need)} MiB{beside}; the server's model_memory is {_mib(self._bound)} MiB"
            )

    async def _make_room(self, model: ServedModel) -> None:
        """Unload models until a model fits. Waits for requests in flight for ROOM_SECONDS at most."""
        end = time.monotonic() + ROOM_SECONDS
        while True:
            loaded = [each for each in self._all() if each.is_loaded and each is not model]
            used = {each for each in loaded if each.pinned or each.in_flight.count}
            idle = [each for each in loaded if each not in used]
            kept = sum(each.memory_bytes for each in used)
            unloaded = to_unload(model.memory_bytes, self._bound, kept, idle)
            if unloaded == []:
                return
            if unloaded:
                await self._unload(unloaded[0])  # others may get requests meanwhile, so that the choice is made again
                continue
            busy = [each for each in used if not each.pinned]
            if not busy or time.monotonic() >= end:
                raise ModelMemoryFull(
                    f"model {model.label} needs {_mib(model.memory_bytes)} MiB; other models with requests in flight "
                    f"have {_mib(kept)} of {_mib(self._bound)} MiB; try again"
                )
            await self._first_idle(busy, end - time.monotonic())

    async def _first_idle(self, models: Iterable[ServedModel], seconds: float) -> None:
        """Wait until one of the models has no request in flight, for at most so many seconds."""
        waits = [asyncio.create_task(model.in_flight.wait_until_idle(seconds)) for model in models]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _unload(self, model: ServedModel, *, while_used: bool = False) -> None:
        loaded = await model.become_cold(while_used=while_used)
        if loaded is None:
            return
        checks = self._completions.get(model)
        if checks is not None and checks is not asyncio.current_task():
            checks.cancel()  # it waits for its turn, and would keep the model in memory
            await asyncio.wait({checks})
            del checks  # its error holds the frames that hold the model
        self._metrics.unload(loaded.metrics)
        self._metrics.pool_evictions.inc()
        freed: list[object] = [loaded]
        del loaded
        await run_in_thread(partial(release_memory, freed), "memory")
        event(logger, logging.INFO, "unloaded to make room", model=model.label)
        self._count_states()

    def _all(self) -> list[ServedModel]:
        return [entry.model for entry in (*self._registry.catalog.entries, *self._registry.draining)]

    def _count_states(self) -> None:
        """Set the gauges of models by state and of their memory."""
        self._registry.count_states(len(self._loads))


def _mib(size: float) -> str:
    return f"{size / MIB:,.0f}"
