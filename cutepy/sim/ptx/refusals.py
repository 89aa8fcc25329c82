"""Refused instructions, with the reason: those that the simulator does not have, and those that Hopper does not have.

docs/simulator_reference.md lists them too.
"""

from __future__ import annotations

import re
from functools import lru_cache

_TEXTURES = "{opcode} is not simulated: textures and surfaces are not; read global memory with ld.global"
_VIDEO = "{opcode} is not simulated: video instructions are not; write them as shifts, min, max and add"
_BLACKWELL = "{opcode} is for sm_100 and later, and Hopper's assembler refuses it; compile for sm_90a"
_UNSYNCHRONISED = "{opcode} without .sync is for GPUs before sm_70; use {first}.sync with a mask of lanes"
_REASONS = [
    (r"(tex|tld4|txq|suq|suld|sust|sured|istypep)\b", _TEXTURES),
    (r"v(add|sub|absdiff|min|max|avrg|set|shl|shr|mad)[24]?\b", _VIDEO),
    (r"multimem\b", "multimem instructions are not simulated: they need several devices"),
    (r"(shfl|vote)\.(?!sync)", _UNSYNCHRONISED),
    (r"match\.(?:any|all)\.(?!sync)", _UNSYNCHRONISED),
    (r"tcgen05|clusterlaunchcontrol|st\.bulk|ldmatrix\..*(m16n16|m8n16)|stmatrix\..*m16n8|(add|sub|mul|fma)\..*f32x2",
     _BLACKWELL),
    (r"(st|red)\.async\..*\bglobal\b|redux\.sync\..*f32|cvt\.rs\b|cvt\..*(e2m1|e2m3|e3m2|ue8m0)", _BLACKWELL),
    (r".*(cp_mask|scale_vec|block_scale|tile::(gather4|scatter4)|im2col::w|cta_group)", _BLACKWELL),
    (r"(ld|st)\..*\bv8\b", _BLACKWELL),
    (r"(ld|st)\..*\bv4\.[busf]64\b", _BLACKWELL),
]  # fmt: skip


@lru_cache(maxsize=1024)
def refusal(opcode: str) -> str:
    """Return why an instruction is refused; nothing if there is no such reason.

    Examples
    --------
    >>> refusal("shfl.up.b32")
    'shfl.up.b32 without .sync is for GPUs before sm_70; use shfl.sync with a mask of lanes'
    >>> refusal("add.s32")
    ''
    """
    for pattern, reason in _REASONS:
        if re.match(pattern, opcode):
            return reason.format(opcode=opcode, first=opcode.partition(".")[0])
    return ""
