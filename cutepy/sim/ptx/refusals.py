"""Instructions of PTX that the simulator does not have, with the reason.

docs/simulator_reference.md lists them too. Instructions that Hopper does not have are refused as the text is read: see
`ptx.modifiers`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_TEXTURES = "{opcode} is not simulated: textures and surfaces are not; read global memory with ld.global"
_VIDEO = "{opcode} is not simulated: video instructions are not; write them as shifts, min, max and add"
_STOCHASTIC = (
    "{opcode} is not simulated: the ISA does not say which of the discarded bits meet the random ones, of which there "
    "are fewer; of bf16x2 there are as many"
)
_REASONS = [
    (r"cvt\.rs\b.*(\.f16x2|x4)\b", _STOCHASTIC),
    (r"(tex|tld4|txq|suq|suld|sust|sured|istypep)\b", _TEXTURES),
    (r"v(add|sub|absdiff|min|max|avrg|set|shl|shr|mad)[24]?\b", _VIDEO),
    (r"multimem\b", "multimem instructions are not simulated: they need several devices"),
]


@lru_cache(maxsize=1024)
def refusal(opcode: str) -> str:
    """Return why an instruction is refused; nothing if there is no such reason.

    Examples
    --------
    >>> refusal("multimem.st.global.f32")
    'multimem instructions are not simulated: they need several devices'
    >>> refusal("add.s32")
    ''
    """
    for pattern, reason in _REASONS:
        if re.match(pattern, opcode):
            return reason.format(opcode=opcode)
    return ""
