"""Loss, gradient norm and speed of the updates between two log lines."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from lingon.training.run.distributed import Processes


class Meter:
    """Collects losses and norms on the device, and reads them only for a log line: reading waits for the device."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self.tokens = 0

    def add(self, loss: Tensor, norm: Tensor, tokens: int) -> None:
        """Count an update: the loss of this process, the norm of the gradient, the target tokens of all processes."""
        self._losses.append(loss)
        self._norms.append(norm)
        self.tokens += tokens

    def seconds(self) -> float:
        """Seconds since the meter was made."""
        return time.perf_counter() - self._start

    def losses(self, processes: Processes) -> Tensor:
        """The loss of every update (updates), summed over all processes."""
        return processes.sum(torch.stack(self._losses).double().cpu())

    def first_nonfinite(self, losses: Tensor, last: int, *, norms: bool) -> str:
        """Describe the first value that is NaN or infinite; return an empty string if all are finite.

        losses: (updates), from `losses`
        last: the step of the last update
        norms: whether the norms of the gradient must be finite too
        """
        values = {"loss": losses.tolist()}
        if norms:
            values["gradient's norm"] = torch.stack(self._norms).tolist()
        for index in range(len(losses)):
            for name, series in values.items():
                if not math.isfinite(series[index]):
                    return f"the {name} at step {last + 1 - len(losses) + index} is {series[index]}"
        return ""

    def figures(self, losses: Tensor) -> dict[str, float]:
        """Return the smoothed loss per target token, the speed, and the norm of the last gradient."""
        return {
            "loss": float(losses.sum()) / self.tokens,
            "tokens_per_second": self.tokens / self.seconds(),
            "gradient_norm": float(self._norms[-1]),
        }
