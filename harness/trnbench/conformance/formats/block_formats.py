"""Block-scaled formats as data: elements, block size, and the scale rule, which is part of a format's name.

Sources: OCP Microscaling Formats (MX) 1.0, sections 5.2 and 6.3 (32 elements, e8m0 scale, rule "ocp"); AWS Neuron
documentation, NKI `quantize_mx` on Trainium3 (rule "trn3": one binade more room, so that nothing saturates); NVIDIA,
"Recipes for Pre-training LLMs with MXFP8" (2025), algorithm 1 (rule "rceil"); NVIDIA, "Pretraining Large Language
Models with NVFP4" (2025), section 2 (16 elements, e4m3 scale, fp32 scale of the whole tensor).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.status import UsageError
from trnbench.wording import nearest

Rule = Literal["ocp", "trn3", "rceil", "two-level"]

RULES: dict[Rule, str] = {
    "ocp": "2^(floor(log2 amax) - Emax)",
    "trn3": "2^(floor(log2 amax) - (Emax - 1))",
    "rceil": "2^ceil(log2(amax / max))",
    "two-level": "e4m3fn of amax / 6 over the fp32 scale of the tensor, its amax / (448 * 6)",
}
"""What each rule makes of the largest magnitude of a block; powers of two are kept within e8m0's 2^-127 to 2^127."""


class BlockFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of `block` elements along the last axis share one scale."""

    name: str
    element: str
    block: int
    scale: str
    rule: Rule

    @property
    def element_format(self) -> Format:
        """Of the elements."""
        return FORMATS[self.element]

    @property
    def scale_format(self) -> Format:
        """Of the scales, one a block."""
        return FORMATS[self.scale]


def _mx(name: str, element: str, rule: Rule) -> BlockFormat:
    return BlockFormat(name=name, element=element, block=32, scale="e8m0fnu", rule=rule)


_BLOCK_FORMATS: tuple[BlockFormat, ...] = (
    _mx("mxfp8 ocp", "fp8 e4m3fn", "ocp"),
    _mx("mxfp8 trn3", "fp8 e4m3fn", "trn3"),
    _mx("mxfp8 rceil", "fp8 e4m3fn", "rceil"),
    _mx("mxfp8 e5m2 ocp", "fp8 e5m2", "ocp"),
    _mx("mxfp4 ocp", "fp4 e2m1fn", "ocp"),
    _mx("mxfp4 rceil", "fp4 e2m1fn", "rceil"),
    BlockFormat(name="nvfp4", element="fp4 e2m1fn", block=16, scale="fp8 e4m3fn", rule="two-level"),
)

BLOCK_FORMATS: dict[str, BlockFormat] = {one.name: one for one in _BLOCK_FORMATS}
"""Every block-scaled format by name."""


def block_format(name: str) -> BlockFormat:
    """The block-scaled format called `name`. Raises `UsageError` for an unknown one."""
    if name not in BLOCK_FORMATS:
        known = "there are " + ", ".join(BLOCK_FORMATS)
        raise UsageError(f"no block-scaled format {name!r}; {nearest(name, BLOCK_FORMATS, known)}")
    return BLOCK_FORMATS[name]
