"""The processes of a run: one, or as many as torchrun started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from lingon.training.device import choose_device, torchrun_number

COLLECTIVE_TIMEOUT = timedelta(days=1)
"""How long a process waits in a collective: the leader may train the tokenizer or translate a validation set meanwhile.

torchrun does not need this timeout to end the other processes after one has died.
"""


@dataclass(frozen=True, slots=True)
class Processes:
    """One process of the run. Its collectives run on the CPU, so that they never wait for a device.

    rank: the number of this process among all processes of the run
    world_size: how many processes the run has
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the files and the messages."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every process has called this."""
        self.any(False)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        flags = torch.tensor(int(flag))
        if self.world_size > 1:
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def sum(self, values: Tensor) -> Tensor:
        """Sum values, a tensor on the CPU, over all processes; the shape stays."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, value: float) -> float:
        """Return the value that the leader passed."""
        values = torch.tensor(value, dtype=torch.float64)
        if self.world_size > 1:
            dist.broadcast(values, src=0)
        return float(values)


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the run: torchrun sets rank and world size in the environment; without it the run has one process.

    device: auto, cpu or cuda; gradients are exchanged by NCCL on CUDA and by gloo on the CPU
    """
    world_size, rank = torchrun_number("WORLD_SIZE", 1), torchrun_number("RANK", 0)
    chosen = choose_device(device)
    if world_size > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        yield Processes(rank, world_size, chosen)
    finally:
        if world_size > 1:
            dist.destroy_process_group()
