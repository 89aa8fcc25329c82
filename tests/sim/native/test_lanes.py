"""Writing machine code of lanes, without a compiler: what a destination may be."""

import pytest

from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, Sink

KINDS = ["u4", "u8", "pred", "u2"]
REGISTERS = [Register(f"%r{n}", kind, n) for n, kind in enumerate(("b32", "b64", "pred", "b16"))]


def lanes(guard=None):
    made = Lanes(KINDS, {}, full=True)
    made.instruction = Instruction(0, "mov.b32", (), guard)
    return made


def test_destinations_are_registers_of_the_instruction_that_is_written():
    for operand in (Immediate(3), Address(REGISTERS[1], 0), "text"):
        made = lanes()
        with pytest.raises(UnsupportedError):
            made.write(operand, made.w.constant(32, 1))
    made = lanes()
    made.instruction = None
    with pytest.raises(UnsupportedError):
        made.write(REGISTERS[0], made.w.constant(32, 1))
    made.write(Sink(), made.w.constant(32, 1))
    assert not made._results


@pytest.mark.parametrize("bits", [1, 8, 16, 32, 64])
def test_values_are_widened_and_never_cut(bits):
    for register, width in zip(REGISTERS, (32, 64, 1, 16), strict=True):
        made = lanes()
        value = made.w.constant(bits, 1)
        if bits > width or (bits == 1) != (width == 1):
            with pytest.raises(UnsupportedError):
                made.write(register, value)
        else:
            made.write(register, value)
            assert made._results[register.index].bits == width


@pytest.mark.parametrize("negated", [False, True])
def test_where_a_guard_does_not_hold_a_register_stays(negated):
    made = lanes((REGISTERS[2], negated))
    value = made.w.constant(32, 1)
    made.write(REGISTERS[0], value)
    old, condition = made.register(0), made.register(2)
    assert made._results[0] not in (value, old)
    made.finish()
    assert made.register(0) not in (value, old, condition)
    assert not made._results
