"""Loss, gradient norm and speed of the updates between two log lines."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from lingon.training.run.distributed import Processes


class Meter:
    """Loss and speed since it was made; nothing waits for the device until the figures are asked for."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self.tokens = 0

    def add(self, loss: Tensor, norm: Tensor, tokens: int) -> None:
        """Count an update: this process' loss, the gradient's norm, the target tokens of all processes."""
        self._losses.append(loss)
        self._norms.append(norm)
        self.tokens += tokens

    def seconds(self) -> float:
        """Since the meter was made."""
        return time.perf_counter() - self._start

    def losses(self, processes: Processes) -> Tensor:
        """The loss of every update (updates), summed over all processes."""
        return processes.sum(torch.stack(self._losses).double().cpu())

    def first_nonfinite(self, losses: Tensor, last: int, *, norms: bool) -> str:
        """What of the updates up to step `last` was the first that is no finite number; empty where all are.

        norms: whether the norm of a gradient has to be finite too
        """
        watched = {"loss": losses.tolist()}
        if norms:
            watched["gradient's norm"] = torch.stack(self._norms).tolist()
        for index in range(len(losses)):
            for name, values in watched.items():
                if not math.isfinite(values[index]):
                    return f"the {name} at step {last + 1 - len(losses) + index} is {values[index]}"
        return ""

    def figures(self, losses: Tensor) -> dict[str, float]:
        """Smoothed loss per target token, speed, and the norm of the last gradient."""
        return {
            "loss": float(losses.sum()) / self.tokens,
            "tokens_per_second": self.tokens / self.seconds(),
            "gradient_norm": float(self._norms[-1]),
        }
