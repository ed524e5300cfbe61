"""The processes of a run: one, or as many as torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lingon.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among those of the run."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes the files and talks to people."""
        return self.rank == 0

    def wait(self) -> None:
        """Until every process is here."""
        if self.world > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.world == 1:
            return flag
        flags = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over all processes."""
        if self.world > 1:
            dist.all_reduce(value)
        return value


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the run: torchrun says in the environment who we are; without it we are alone.

    device: auto, cpu or cuda; processes talk through NCCL on CUDA and gloo on the CPU
    """
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    chosen = _device(device)
    if world > 1:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Processes(rank, world, chosen)
    finally:
        if world > 1:
            dist.destroy_process_group()


def _device(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError("training.device = 'cuda', but torch sees no CUDA device")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device
