"""Classes of instructions, for counts: what a kernel spends its instructions on."""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction

_BY_OPCODE = {
    opcode: name
    for name, opcodes in {
        "memory": "ld ldu st prefetch prefetchu discard applypriority createpolicy",
        "atomic": "atom red",
        "async_copy": "cp tensormap",
        "matrix": "ldmatrix stmatrix movmatrix mma",
        "wgmma": "wgmma",
        "barrier": "bar barrier mbarrier fence membar griddepcontrol",
        "warp": "shfl vote match redux activemask elect",
        "control": "bra brx call ret exit trap brkpt nanosleep setmaxnreg pmevent",
        "conversion": "cvt cvta",
        "comparison": "setp set selp slct testp",
        "move": "mov prmt mapa getctarank isspacep",
    }.items()
    for opcode in opcodes.split()
}
_FLOAT_TYPES = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")

CLASSES = (*dict.fromkeys(_BY_OPCODE.values()), "float", "integer")


def class_of(i: Instruction) -> str:
    """Return the class of an instruction, one of `CLASSES`: arithmetic is "float" or "integer".

    Examples
    --------
    >>> [class_of(Instruction(0, opcode, ())) for opcode in ("fma.rn.f32", "add.s32", "ld.global.f32", "bra.uni")]
    ['float', 'integer', 'memory', 'control']
    """
    parts = i.parts
    return _BY_OPCODE.get(parts[0]) or ("float" if parts[-1] in _FLOAT_TYPES else "integer")
