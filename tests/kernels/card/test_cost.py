"""What a step launches."""

from __future__ import annotations

import json
import zipfile

import pytest

from kernels.card.build import ARCHIVE
from kernels.card.cost import Decoder, step


@pytest.mark.parametrize(("norm_first", "greedy", "beams"), [(True, 53, 54), (False, 70, 71)])
def test_the_launches_of_a_step_of_base(norm_first: bool, greedy: int, beams: int) -> None:
    decoder = Decoder(norm_first=norm_first)
    for sentences in (1, 64, 256):
        assert len(step(decoder, sentences, 1)) == greedy
        assert len(step(decoder, sentences, 4)) == beams


def test_all_launches_are_of_kernels_of_the_archive() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        kernels = json.loads(archive.read("manifest.json"))["kernels"]
    for norm in ("layer", "rms"):
        for norm_first in (True, False):
            for dim in (256, 512, 1024):
                decoder = Decoder(dim=dim, norm=norm, norm_first=norm_first)
                for sentences, beams in ((1, 1), (16, 1), (300, 1), (1, 4), (64, 8)):
                    assert {each.kernel for each in step(decoder, sentences, beams)} <= set(kernels)
