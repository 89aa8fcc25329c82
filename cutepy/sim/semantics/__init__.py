"""Meaning of PTX instructions, written once on a builder of few typed operations.

`builder` has the operations, and their evaluation on integers and on arrays. `integers`, `comparison`, `conversion` and
`movement` say what instructions compute. Back ends implement the builder: numpy source (`translate.expressions`),
machine code (`native.builder`), constant folding, arrays and definedness (`evaluation`, `sanitize.undefined_bits`).

Lane exchange, memory, synchronisation and matrices have no meaning here, and neither has arithmetic of floats yet.

Examples
--------
An instruction is added by a function in the module of its family:

    @meaning("cnot")
    def _cnot(b: Builder[V], i: Instruction) -> None:
        a = b.read(i.operands[1], kind_of(i.parts[-1]))
        b.write(i.operands[0], b.resized(b.compare("eq", a, b.constant(a.bits, 0)), a.bits))
"""

from cutepy.sim.semantics import comparison, conversion, integers, movement  # noqa: F401  each registers its meanings
from cutepy.sim.semantics.registry import MEANINGS as MEANINGS, meaning_of as meaning_of
