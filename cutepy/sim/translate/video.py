"""Video instructions.

References
----------
PTX ISA, "Scalar Video Instructions", "SIMD Video Instructions".
"""

from __future__ import annotations

from cutepy.sim.arithmetic.video import Video
from cutepy.sim.ptx.model import Instruction, Operand, Selected
from cutepy.sim.translate.emitter import Emitter, instruction

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SECONDARY = ("add", "min", "max")
_SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset")
_SIMD = tuple(f"{name}{lanes}" for name in (*_SCALAR, "vavrg") for lanes in (2, 4))
_SCALES = {"shr7": 7, "shr15": 15}


def _parts(operand: Operand) -> tuple[Operand, str, bool]:
    if isinstance(operand, Selected):
        return operand.operand, operand.parts, operand.negated
    return operand, "", False


def _read(e: Emitter, operand: Operand) -> str:
    return e.read(_parts(operand)[0], "u4")


def _video(e: Emitter, i: Instruction, name: str, lanes: int) -> tuple[Video, Operand]:
    """Read what an instruction says, and its destination without selector."""
    types = [p for p in i.parts[1:] if p in ("u32", "s32")]
    if name == "set":
        types = ["u32", *types]
    if len(types) != 3:
        raise e.unknown("three types are needed, .u32 or .s32")
    d, part, _ = _parts(i.operands[0])
    comparison = next((p for p in i.parts[1:] if p in _COMPARISONS), "")
    if (name == "set") != bool(comparison):
        raise e.unknown("its operands are of a form that is not known")
    video = Video(
        name,
        types[0],
        types[1],
        types[2],
        _parts(i.operands[1])[1],
        _parts(i.operands[2])[1],
        part,
        lanes,
        "sat" in i.parts,
        next((p for p in i.parts[1:] if p in _SECONDARY), ""),
        comparison,
        next((p for p in i.parts[1:] if p in ("clamp", "wrap")), ""),
    )
    return video, d


def _emit(e: Emitter, i: Instruction, name: str, lanes: int) -> None:
    video, d = _video(e, i, name, lanes)
    needs_c = lanes > 1 or bool(video.secondary) or bool(video.part)
    if len(i.operands) != 3 + needs_c:
        raise e.unknown(f"{len(i.operands)} operands")
    a, b = (_read(e, operand) for operand in i.operands[1:3])
    c = _read(e, i.operands[3]) if needs_c else e.immediate(0, "u4")
    constant = e.constant(video, f"VIDEO_{i.index}")
    e.write(d, f"video.{'simd' if lanes > 1 else 'scalar'}({constant}, {a}, {b}, {c})", "u4")


@instruction(*_SCALAR, accepts=f"sat {' '.join(_SECONDARY)} {' '.join(_COMPARISONS)}")
@instruction("vshl", "vshr", accepts=f"sat clamp wrap {' '.join(_SECONDARY)}")
def _scalar(e: Emitter, i: Instruction) -> None:
    _emit(e, i, i.parts[0][1:], 1)


@instruction(*_SIMD, accepts=f"sat add {' '.join(_COMPARISONS)}")
def _simd(e: Emitter, i: Instruction) -> None:
    _emit(e, i, i.parts[0][1:-1], int(i.parts[0][-1]))


@instruction("vmad", accepts="sat po shr7 shr15")
def _vmad(e: Emitter, i: Instruction) -> None:
    video, d = _video(e, i, "mad", 1)
    a, b, c = (_read(e, operand) for operand in i.operands[1:])
    signs = [_parts(operand)[2] for operand in i.operands[1:]]
    scale = next((bits for name, bits in _SCALES.items() if name in i.parts), 0)
    constant = e.constant(video, f"VIDEO_{i.index}")
    arguments = f"{signs[0] != signs[1]}, {signs[2]}, {'po' in i.parts}, {scale}"
    e.write(d, f"video.multiply_add({constant}, {a}, {b}, {c}, {arguments})", "u4")
