"""PTX as data: a parser and the model it fills."""

from cutepy.sim.ptx.model import (
    Address as Address,
    Function as Function,
    Immediate as Immediate,
    Instruction as Instruction,
    Label as Label,
    Module as Module,
    Operand as Operand,
    Pair as Pair,
    Parameter as Parameter,
    Reference as Reference,
    Register as Register,
    SourceLine as SourceLine,
    Special as Special,
    Symbol as Symbol,
    UnreadStatement as UnreadStatement,
    Variable as Variable,
    Vector as Vector,
)
from cutepy.sim.ptx.parser import parse_module as parse_module

__all__ = [
    "Address",
    "Function",
    "Immediate",
    "Instruction",
    "Label",
    "Module",
    "Operand",
    "Pair",
    "Parameter",
    "Reference",
    "Register",
    "SourceLine",
    "Special",
    "Symbol",
    "UnreadStatement",
    "Variable",
    "Vector",
    "parse_module",
]
