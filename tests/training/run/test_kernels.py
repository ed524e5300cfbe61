from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from lingon.training.run.kernels import KEPT_PLANS, PLANS_OF_CPU, fast_kernels


@pytest.mark.parametrize(("device", "fused"), [("cpu", False), ("cuda", True)])
def test_attention_runs_without_kernels_that_measured_slow(device: str, fused: bool) -> None:
    """PyTorch has these switches with and without a GPU."""
    switches: Any = torch.backends.cuda
    with fast_kernels(torch.device(device)):
        assert not switches.cudnn_sdp_enabled()
        assert switches.flash_sdp_enabled() is fused
        assert switches.math_sdp_enabled()
    assert switches.cudnn_sdp_enabled()


def test_few_plans_of_products_are_kept_unless_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {PLANS_OF_CPU[0]: "7"})
    with fast_kernels(torch.device("cuda")):
        assert list(os.environ) == [PLANS_OF_CPU[0]]
    with fast_kernels(torch.device("cpu")):
        assert os.environ == {PLANS_OF_CPU[0]: "7", PLANS_OF_CPU[1]: str(KEPT_PLANS)}
