"""Meaning of PTX instructions, written once on a builder of few typed operations.

`builder` has the operations, and their evaluation on integers and on arrays. `integers`, `floating`, `comparison`,
`conversion`, `movement` and `launch_control` say what instructions compute: to add one, write a function there and
register it with `@meaning("opcode")`. Back ends implement the builder: numpy source (`translate.expressions`), machine
code (`native.table`), constant folding (`evaluation`) and definedness of bits (`sanitize.undefined_bits`).

Lane exchange, memory, synchronisation and matrices have no meaning here: they ask the machine.
"""

from cutepy.sim.semantics import (  # noqa: F401  each registers its meanings
    comparison,
    conversion,
    floating,
    integers,
    launch_control,
    movement,
)
from cutepy.sim.semantics.builder import MEANINGS as MEANINGS, meaning_of as meaning_of
