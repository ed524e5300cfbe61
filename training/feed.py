"""The batches of a run in their order, made ahead by worker processes so that a device does not wait for them.

The order is a function of seed, epoch and progress: a run that is resumed gets the batches that it had not done.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from lingon.errors import LingonError, SettingsError
from lingon.training.batches import Batch, BatchMaker, BatchRequest
from lingon.training.checkpoint import TrainingProgress
from lingon.training.config import Config
from lingon.training.epochs import Mixture, block_positions, blocks, mixed, mixture, plan_batches
from lingon.training.prepared import PreparedCorpus
from lingon.training.processes import Processes

AHEAD = 8
"""Batches that each worker makes before they are asked for."""


@dataclass(frozen=True, slots=True)
class UpdateGroup:
    """The micro-batches of one update.

    requests: of all processes
    tokens: target tokens of all of them, of the best segmentations
    epoch, block, batch: the progress after the update
    share: of this epoch that is done then
    """

    requests: list[BatchRequest]
    tokens: int
    epoch: int
    block: int
    batch: int
    share: float

    def mine(self, rank: int, world_size: int) -> list[int]:
        """Return the numbers of the micro-batches that a process makes: one at least, as it must take part."""
        return list(range(rank, len(self.requests), world_size)) or [0]


class Feed:
    """The updates of a run, from its progress on."""

    def __init__(self, corpus: PreparedCorpus, config: Config, maker: BatchMaker, processes: Processes) -> None:
        self._corpus, self._config, self._maker, self._processes = corpus, config, maker, processes
        workers = config.training.workers
        self._workers = (2 if processes.device.type == "cuda" else 0) if workers is None else workers

    def updates(self, progress: TrainingProgress) -> Iterator[tuple[UpdateGroup, list[Batch]]]:
        """Yield the groups of updates without end, each with the batches of this process."""
        ahead: deque[UpdateGroup] = deque()
        rank, world_size = self._processes.rank, self._processes.world_size

        def requests() -> Iterator[BatchRequest]:
            for group in self._groups(progress.step, progress.epoch, progress.block, progress.batch):
                ahead.append(group)
                for number in group.mine(rank, world_size):
                    yield group.requests[number]

        batches = self._made(requests())
        while True:
            first = next(batches)
            group = ahead.popleft()
            yield group, [first, *(next(batches) for _ in group.mine(rank, world_size)[1:])]

    def _made(self, requests: Iterator[BatchRequest]) -> Iterator[Batch]:
        if not self._workers:
            yield from map(self._maker.batch, requests)
            return
        loader = DataLoader(
            _Batches(self._maker),
            batch_size=None,
            sampler=_Sampler(requests),
            num_workers=self._workers,
            prefetch_factor=AHEAD,
            multiprocessing_context="forkserver",
            worker_init_fn=_ignore_signals,
            pin_memory=self._processes.device.type == "cuda",
        )
        try:
            for made in loader:
                if isinstance(made, LingonError):
                    raise made
                yield made
        except (RuntimeError, OSError, EOFError) as error:
            # The latter two, if it ends while it hands a batch over.
            if isinstance(error, RuntimeError) and "exited unexpectedly" not in str(error):
                raise
            reason = "the system may have ended it for lack of memory; training.workers = 0 needs the least"
            raise LingonError(f"a process that makes batches has ended: {reason}") from None

    def _groups(self, step: int, epoch: int, block: int, batch: int) -> Iterator[UpdateGroup]:
        """Yield the groups after an update; step, epoch, block, batch: the progress of that update."""
        settings = self._config.training
        sizes = [each.kept for each in self._corpus.manifest.corpora]
        stage = settings.stage_of(max(step, 1))
        while True:
            seed = (settings.seed, epoch)
            shown = mixture(self._config, sizes, seed, stage)
            count = blocks(len(shown))
            while block < count and stage == settings.stage_of(step + 1):
                rows, keys, plan = self._plan(shown, block, seed)
                while batch < len(plan) and stage == settings.stage_of(step + 1):
                    numbers = plan[batch : batch + settings.accumulate]  # fewer at the end of a block
                    batch, step = batch + len(numbers), step + 1
                    requests = [BatchRequest(rows[number], keys[number]) for number in numbers]
                    tokens = int(sum(self._corpus.lengths[each.rows, 1].sum() for each in requests))
                    share = (block + batch / len(plan)) / count
                    yield UpdateGroup(requests, tokens, epoch, block, batch, share)
                block, batch = block + 1, 0
            epoch, block, batch, stage = epoch + 1, 0, 0, settings.stage_of(step + 1)

    def _plan(
        self, shown: Mixture, block: int, seed: tuple[int, int]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], list[NDArray[np.int64]]]:
        """Return rows and keys of a block of an epoch, see `BatchRequest`, and which of them each batch has."""
        settings = self._config.training
        positions = block_positions(len(shown), block, seed)
        rows = shown.rows(positions)
        of_epoch = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        keys = mixed(positions.astype(np.uint64)) ^ of_epoch
        of_block = seed if blocks(len(shown)) == 1 else (*seed, 5, block + 1)
        plan = plan_batches(self._maker.planned_lengths(rows, keys), settings.batch_tokens, of_block)
        if len(plan) < settings.accumulate:
            raise SettingsError(
                f"training.accumulate must be at most {len(plan)}, the batches of an epoch, got {settings.accumulate}"
            )
        return rows, keys, plan


def _ignore_signals(worker: int) -> None:
    """Leave SIGINT and SIGTERM, which a terminal or a supervisor sends to all processes, to the process of the run."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class _Batches(Dataset[Batch | LingonError]):
    """What the workers of a DataLoader make batches with."""

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker

    def __getitem__(self, request: BatchRequest) -> Batch | LingonError:
        """Return the batch, or the error: a DataLoader would put a traceback of several lines into its message."""
        try:
            return self._maker.batch(request)
        except LingonError as error:
            return error


class _Sampler:
    """The requests of a run, of which there is no end."""

    def __init__(self, requests: Iterator[BatchRequest]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[BatchRequest]:
        return self._requests
