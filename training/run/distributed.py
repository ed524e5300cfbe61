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
"""How long processes wait for one another: one may train the tokenizer or search a validation set meanwhile.

Where torchrun started them it ends the others of one that died, without this.
"""


@dataclass(frozen=True, slots=True)
class Processes:
    """One process among those of the run. What is agreed on travels through the CPU, so no device is waited for."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the files and talks to people."""
        return self.rank == 0

    def barrier(self) -> None:
        """Until every process is here."""
        self.any(False)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        flags = torch.tensor(int(flag))
        if self.world_size > 1:
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def sum(self, values: Tensor) -> Tensor:
        """The sums of numbers on the CPU over all processes, of the shape of values."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, value: float) -> float:
        """The number that the leading process has."""
        values = torch.tensor(value, dtype=torch.float64)
        if self.world_size > 1:
            dist.broadcast(values, src=0)
        return float(values)


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the run: torchrun says in the environment who we are; without it we are alone.

    device: auto, cpu or cuda; gradients travel through NCCL on CUDA and gloo on the CPU
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
