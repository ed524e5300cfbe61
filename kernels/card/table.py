"""All kernels of the archive, as data: their functions, parameters, hints and constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.card import attention, choice, places, products, search

TYPES = {"h": "*fp16", "f": "*fp32", "i": "*i32", "l": "*i64", "I": "i32", "16": "i32", "F": "fp32"}
"""Types of Triton by those below: pointers in small letters; I an integer, 16 one that 16 divides, F a float."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled function.

    signature: by parameter, its type, see TYPES
    constants: by constexpr parameter, its value
    warps: of a program; stages: of loads in loops, all but one of which are in shared memory at the same time
    """

    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, int] = field(default_factory=dict)
    warps: int = 4
    stages: int = 3

    @property
    def parameters(self) -> str:
        """One letter for each parameter: p a pointer, i a 32-bit integer, f a float."""
        return "".join({"I": "i", "16": "i", "F": "f"}.get(each, "p") for each in self.signature.values())

    @property
    def types(self) -> dict[str, str]:
        """The signature that Triton takes."""
        found = {name: TYPES[each] for name, each in self.signature.items()}
        return found | dict.fromkeys(self.constants, "constexpr")

    @property
    def hints(self) -> dict[tuple[int], list[list[Any]]]:
        """The parameters that 16 divides, by position: all pointers, and integers of type 16."""
        return {
            (position,): [["tt.divisibility", 16]]
            for position, each in enumerate(self.signature.values())
            if each == "16" or each.islower()
        }


def _signature(names: str, types: str) -> dict[str, str]:
    return dict(zip(names.split(), types.split(), strict=True))


LINEAR = _signature(
    "x weight bias gain shift residual y kept rows n16 k16 epsilon relu residual_given kept_given",
    "h h h h h h h h I 16 16 F I I I",
)
NORM = _signature("x gain shift y rows k16 epsilon", "h h h h I 16 F")
STEP_ATTENTION = _signature("packed keys values table positions y heads capacity scale", "h h h i l h I I F")
CROSS_ATTENTION = _signature("query keys values lengths y heads beams width16 scale", "h h h l h I I 16 F")
SELF_ATTENTION = _signature("packed tiles y heads scale", "h i h I F")
PLACE_MEMORY = _signature("rows targets keys values heads size width stride offset", "h i h h I I I I I")
EMBED = _signature("ids pieces positions table y dim16 scale positions_given", "l h l h h 16 F I")
CHOOSE = _signature("x weight bias best top total logits rows n16 k16 blocks", "h h h l f f f I 16 16 I")
MERGE = _signature("best top total log_probs ids blocks count", "l f f f l I I")
GREEDY_STEP = _signature(
    "ids log_probs token_ids positions history step new_token_ids new_positions new_step rows candidates steps",
    "l f l l f l l l l I I I",
)
BEAM_STEP = _signature(
    "ids log_probs token_ids positions rows totals table log_ids log_values step new_token_ids new_positions"
    " sentences beams candidates capacity steps end",
    "l f l l l f i l f l l l I I I I I I",
)
ADVANCE_STEP = _signature("step new_step steps", "l l I")

NORMS = {"layer": 1, "rms": 0}
WIDTHS = (256, 512, 1024)
HEAD_SIZES = (32, 64, 128)
TOPS = (1, 8, 16)
BEAMS = (2, 4, 8, 16)


def kernels() -> dict[str, Kernel]:
    """Return all kernels by name."""
    return _products() | _attentions() | _choices() | _searches()


def _products() -> dict[str, Kernel]:
    """Return products and norms.

    Tiles are as wide as leaves most processors of a card with work: m16 is for up to 16 rows, m32n32 for more, and m32
    for so many that there are 128 of its programs. A narrow tile asks for the weights of many columns of K at once,
    because its time is that of the latency of memory.
    """
    found = {
        "linear_none_m16": Kernel(products.linear, LINEAR, dict(BM=16, BN=16, BK=256), stages=5),
        "linear_none_m32n32": Kernel(products.linear, LINEAR, dict(BM=32, BN=32, BK=128), stages=5),
        "linear_none_m32": Kernel(products.linear, LINEAR, dict(BM=32, BN=64, BK=64), stages=4),
    }
    for name, layer in NORMS.items():
        for width in WIDTHS:
            whole = dict(LAYER=layer, KP=width)
            few, some, many = dict(BM=16, BN=16), dict(BM=32, BN=32), dict(BM=32, BN=64, BK=64)
            key, warps = f"linear_{name}_k{width}", 8 if width > 512 else 4
            found[f"{key}_m16"] = Kernel(products.linear_of_norm, LINEAR, whole | few, warps=warps)
            at_once, in_blocks = products.linear_of_norm, products.linear_of_norm_in_blocks
            if width > 512:
                some, at_once = some | dict(BK=64), in_blocks
            found[f"{key}_m32n32"] = Kernel(at_once, LINEAR, whole | some, warps=8, stages=5)
            found[f"{key}_m32"] = Kernel(in_blocks, LINEAR, whole | many, warps=8, stages=4)
        found[f"norm_{name}"] = Kernel(products.norm, NORM, dict(LAYER=layer, BLOCK=1024))
    return found


def _attentions() -> dict[str, Kernel]:
    found = {}
    for size in HEAD_SIZES:
        block = dict(D=size, BP=16 if size > 64 else 32)
        found[f"step_attention_d{size}"] = Kernel(attention.step_attention, STEP_ATTENTION, block, warps=1)
        found[f"cross_attention_d{size}"] = Kernel(attention.cross_attention, CROSS_ATTENTION, block, warps=1)
        found[f"self_attention_d{size}"] = Kernel(attention.self_attention, SELF_ATTENTION, block, warps=1)
    found["place_memory"] = Kernel(places.place_memory, PLACE_MEMORY, dict(BLOCK=128), warps=1)
    found["embed"] = Kernel(places.embed, EMBED, dict(BLOCK=1024))
    return found


def _choices() -> dict[str, Kernel]:
    found = {}
    for top in TOPS:
        for rows in (16, 32):
            for suffix, logits in (("", 0), ("_logits", 1)):
                constants = dict(TOP=top, LOGITS=logits, BM=rows, BN=128, BK=64)
                found[f"choose_t{top}_m{rows}{suffix}"] = Kernel(choice.choose, CHOOSE, constants, stages=4)
        found[f"merge_t{top}"] = Kernel(choice.merge, MERGE, dict(TOP=top, CHUNK=256), warps=8 if top > 8 else 4)
    return found


def _searches() -> dict[str, Kernel]:
    found = {
        "greedy_step": Kernel(search.greedy_step, GREEDY_STEP, dict(BLOCK=256)),
        "advance_step": Kernel(search.advance_step, ADVANCE_STEP, warps=1),
    }
    for beams in BEAMS:
        warps = {8: 4, 16: 16}.get(beams, 1)
        found[f"beam_step_b{beams}"] = Kernel(search.beam_step, BEAM_STEP, dict(B=beams, BLOCK=64), warps=warps)
    return found
