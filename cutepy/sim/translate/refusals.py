"""Instructions that are known and not simulated: why, by how their opcodes look.

docs/simulator.md lists them too. What an H200 does not have is refused as the text is read: see `ptx.modifiers`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_TEXTURES = "{opcode} is not simulated: of textures, tex and tld4 are, and of surfaces suld.b and sust.b"
_REASONS = [
    (r"sured|sust\.p", _TEXTURES),
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
