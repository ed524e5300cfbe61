from __future__ import annotations

from typing import Any

import pytest
import torch

from lingon.training.run.kernels import fast_kernels


@pytest.mark.parametrize(("device", "fused"), [("cpu", False), ("cuda", True)])
def test_attention_runs_without_kernels_that_measured_slow(device: str, fused: bool) -> None:
    """PyTorch has these switches with and without a GPU."""
    switches: Any = torch.backends.cuda
    with fast_kernels(torch.device(device)):
        assert not switches.cudnn_sdp_enabled()
        assert switches.flash_sdp_enabled() is fused
        assert switches.math_sdp_enabled()
    assert switches.cudnn_sdp_enabled()
