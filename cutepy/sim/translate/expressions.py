"""numpy source of instructions whose meaning is on the builder.

The operations of an instruction form a graph. A node that is used once is written inline, a node that is used more
often is assigned to a local variable, and an unused node is not written.
"""

from __future__ import annotations

from typing import Any

from cutepy.sim.ptx.model import Immediate, Instruction, NegatedPredicate, Operand, Register, Sink
from cutepy.sim.semantics.builder import Builder, Meaning
from cutepy.sim.semantics.types import canonical_bits, constant_bits, width
from cutepy.sim.translate.emitter import Emitter

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "udiv": "//", "and": "&", "or": "|", "xor": "^", "shl": "<<", "lshr": ">>",
    "ashr": ">>", "eq": "==", "ne": "!=",
    **{sign + name: text for sign in "us" for name, text in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))},
}  # fmt: skip
_CALLS = {
    "umin": "minimum", "smin": "minimum", "umax": "maximum", "smax": "maximum", "popc": "alu.popc", "clz": "alu.clz",
    "brev": "alu.brev",
}  # fmt: skip
_OF_SIGN = {
    **dict.fromkeys(("udiv", "lshr", "umin", "umax", "ult", "ule", "ugt", "uge", "popc", "clz", "brev", "zext"), "u"),
    **dict.fromkeys(("ashr", "smin", "smax", "slt", "sle", "sgt", "sge", "sext"), "i"),
}
"""Operations that depend on the sign, and the letter of the kind that their operands then have."""
_RESIZES = frozenset(("zext", "sext", "trunc"))
_ORDERED = {"oeq": "==", "olt": "<", "ole": "<=", "ogt": ">", "oge": ">="}
_FLOATS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))},
    **{name: f"floats.{full}({{all}})" for name, full in (
        ("min", "minimum"), ("max", "maximum"), ("min_nan", "minimum_nan"), ("max_nan", "maximum_nan"),
        ("sin", "sine"), ("cos", "cosine"),
    )},
    **{name: f"floats.{name}({{g[0]!r}}, {{g[1]!r}}, {{all}})" for name in ("directed", "narrow_operation")},
    "flush_tiny": "floats.flush_tiny({0}, {g[0]!r}, {g[1]!r}, {rest})",
    "neg": "-{0}",
    "abs": "abs_({0})",
    "sqrt": "sqrt({0})",
    "copysign": "copysign({all})",
    "clip": "clip({0}, -{g[0]!r}, {g[0]!r}).astype(f4)",
    "tf32": "minifloat.f32_to_tf32({0}, {g[0]!r})",
    "finite_tf32": "minifloat.finite_tf32({0}, {g[0]!r})",
    "keep_nan": "minifloat.keep_nan({all}, {g[0]!r})",
    "from_f32": "minifloat.from_f32({0}, {g[0]!r})",
    "to_f32": "minifloat.to_f32({0}, {g[0]!r})",
}  # fmt: skip
"""Operation of floats -> its source, of operands {0}, {1} or {all} and parameters {g}; `_of_floats` has the others."""
_OPERANDS_OF_BITS = {"finite_tf32": "u", "keep_nan": "uf", "to_f32": "u"}
"""Operations -> the letters of the kinds of operands that are no floats."""
_RESULTS_OF_BITS = frozenset(("narrow", "tf32", "finite_tf32", "keep_nan", "from_f32"))


class Node:
    """A value: an operation and its operands, a constant, or an operand of the instruction.

    Attributes
    ----------
    operation : str
        Of the builder; empty for an operand of the instruction or a constant.
    bits : int
    letter : str
        The kind in which it comes without a view: u, i or f; empty if any.
    arguments : tuple of Node
    given : tuple or None
        Parameters of an operation of floats.
    number : int or None
        Of a constant.
    operand : Operand or None
    text : str
        The name that holds it; of an operand that is no register its expression.
    uses : int
        Times that the results need it.
    """

    __slots__ = ("arguments", "bits", "given", "letter", "number", "operand", "operation", "text", "uses")

    def __init__(self, operation: str, bits: int, letter: str, arguments: tuple[Node, ...] = ()) -> None:
        self.operation, self.bits, self.letter, self.arguments = operation, bits, letter, arguments
        self.given: tuple[Any, ...] | None = None
        self.number: int | None = None
        self.operand: Operand | None = None
        self.text = ""
        self.uses = 0


class Expressions(Builder[Node]):
    """The operations of one instruction.

    Parameters
    ----------
    e : Emitter
        Emitter that gets the source.
    """

    def __init__(self, e: Emitter) -> None:
        self._e = e
        self._nodes: dict[object, Node] = {}
        self._results: list[tuple[Operand, Node, bool]] = []

    def read(self, operand: Operand, kind: str) -> Node:
        """Return an operand."""
        if isinstance(operand, Immediate):
            return self.constant(width(kind), constant_bits(operand, kind))
        if isinstance(operand, NegatedPredicate):
            return self.invert(self.read(operand.operand, kind))
        key = operand.index if isinstance(operand, Register) else operand, kind
        if key not in self._nodes:
            node = self._nodes[key] = Node("", width(kind), "u")
            node.operand = operand
            own = self._e.kind_of_register(operand) if isinstance(operand, Register) else ""
            if own and width(own) == width(kind):
                node.letter = own[0]
                self._e.read(operand, own)
            else:  # of a register that has another width the emitter says that
                node.text = self._e.read(operand, kind if own or kind == "pred" else f"u{kind[1:]}")
        return self._nodes[key]

    def read_wide(self, operand: Operand, kind: str) -> Node:
        """Return the low bits of an operand that may be wider than the kind."""
        if isinstance(operand, Register) and operand.type != "pred" and operand.bits > width(kind):
            return self.resized(self.read(operand, canonical_bits(operand)), width(kind))
        return self.read(operand, kind)

    def constant(self, bits: int, number: int) -> Node:
        """Return a constant."""
        number &= (1 << bits) - 1
        key = bits, number
        if key not in self._nodes:
            node = self._nodes[key] = Node("", bits, "")
            node.number = number
        return self._nodes[key]

    def unknown(self, reason: str = "") -> Exception:
        """Make the error for a form of an instruction that has no meaning."""
        return self._e.unknown(reason)

    def write(self, operand: Operand, value: Node, signed: bool = False) -> None:
        """Note a result."""
        if not isinstance(operand, Sink):
            self._results.append((operand, value, signed))

    def _apply(self, operation: str, bits: int, *values: Node) -> Node:
        key = operation, bits, values
        if key not in self._nodes:
            letter = ""
            if operation in _OF_SIGN and operation not in _RESIZES:
                letter = _OF_SIGN[operation]
            elif bits > 1 and operation not in _RESIZES:
                letters = {x.letter for x in values[operation == "select" :]} - {""}
                letter = letters.pop() if len(letters) == 1 else "u"
                letter = "u" if letter == "f" and operation != "select" else letter
            self._nodes[key] = Node(operation, bits, letter, values)
        return self._nodes[key]

    def _apply_floats(self, operation: str, bits: int, values: tuple[Node, ...], given: tuple[Any, ...]) -> Node:
        key = operation, bits, values, given
        if key not in self._nodes:
            letter = "u" if operation in _RESULTS_OF_BITS else "f"
            letter = given[0][0] if operation == "float_to_int" else letter
            node = self._nodes[key] = Node(operation, bits, letter, values)
            node.given = given
        return self._nodes[key]

    def finish(self) -> None:
        """Write the source."""
        for _, value, _ in self._results:
            self._count(value)
        for operand, value, signed in self._results:
            own = self._e.kind_of_register(operand) if isinstance(operand, Register) else ""
            letter = value.letter or "u"
            if own and own != "pred" and width(own) == value.bits:
                letter = own[0]
            elif own and width(own) > value.bits:
                letter = "i" if signed else "u"
            if letter == "f" and value.letter != "f":
                letter = "u"
            kind = "pred" if value.bits == 1 else f"{letter}{value.bits // 8}"
            self._e.write(operand, self._text(value, letter), kind)

    def _count(self, node: Node) -> None:
        node.uses += 1
        if node.uses == 1:
            for x in node.arguments:
                self._count(x)

    def _text(self, node: Node, letter: str, inner: bool = False) -> str:
        """Return an expression of a value, of a kind's letter; one for another expression is in brackets."""
        if node.number is not None:
            return self._constant(node, letter)
        if isinstance(node.operand, Register) and not node.text:
            return self._e.read(node.operand, "pred" if node.bits == 1 else f"{letter}{node.bits // 8}")
        own = node.letter or ("u" if letter == "f" else letter)
        if node.uses > 1 and not node.text.isidentifier():
            node.letter, node.text = own, self._e.temporary(node.text or self._computed(node, own))
        text = node.text or self._computed(node, own)
        is_viewed = own != letter and node.bits > 1
        if (inner or is_viewed) and not node.text and _is_loose(node):
            text = f"({text})"
        return f"{text}.view({letter}{node.bits // 8})" if is_viewed else text

    def _constant(self, node: Node, letter: str) -> str:
        assert node.number is not None
        if node.bits == 1:
            return self._e.immediate(node.number, "pred")
        return self._e.immediate(node.number, f"{letter}{node.bits // 8}", node.bits if letter == "f" else 0)

    def _computed(self, node: Node, letter: str) -> str:
        """Return the expression of an operation."""
        operation, x = node.operation, node.arguments
        if node.given is not None:
            return self._of_floats(operation, x, node.given, node.bits)
        if operation in _RESIZES:
            own = _OF_SIGN.get(operation) or x[0].letter or "u"
            own = "u" if own == "f" else own
            return f"{self._text(x[0], own, True)}.astype({letter}{node.bits // 8})"
        inner = _OF_SIGN.get(operation) or (letter if node.bits > 1 else "")
        if not inner:  # a comparison
            inner = "i" if all(y.letter in ("", "i") for y in x) else "u"
        if operation == "select":
            return f"where({self._text(x[0], '')}, {self._text(x[1], inner)}, {self._text(x[2], inner)})"
        if operation in _CALLS:
            return f"{_CALLS[operation]}({', '.join(self._text(y, inner) for y in x)})"
        if operation == "xor" and any(y.number == (1 << y.bits) - 1 for y in x):
            (other,) = (y for y in x if y.number is None)
            return f"~{self._text(other, inner, True)}"
        if operation == "sub" and x[0].number == 0:
            return f"-{self._text(x[1], inner, True)}"
        return f"{self._text(x[0], inner, True)} {_INFIX[operation]} {self._text(x[1], inner, True)}"

    def _of_floats(self, operation: str, x: tuple[Node, ...], g: tuple[Any, ...], bits: int) -> str:
        """Return the expression of an operation of floats."""
        letters = _OPERANDS_OF_BITS.get(operation, "f")
        if operation in ("from_int", "widen"):
            letters = g[2] if operation == "from_int" else "f" if g[0] == "f16" else "u"
        tight = operation in _TIGHT
        texts = [self._text(y, letters[min(n, len(letters) - 1)], tight) for n, y in enumerate(x)]
        if operation == "compare":
            return _compared(g[0], *texts)
        if operation == "widen":
            return f"{texts[0]}.astype(f4)" if g[0] == "f16" else f"minifloat.bf16_to_f32({texts[0]})"
        if operation == "narrow":
            return f"minifloat.to_{g[0]}({texts[0]}{'' if g[1] == 'rn' else f', {g[1]!r}'})"
        if operation == "convert":
            kind = f"f{bits // 8}"
            return f"{texts[0]}.astype({kind})" if g[0] == "rn" else f"floats.round_to({texts[0]}, {kind}, {g[0]!r})"
        if operation == "from_int":
            is_plain = g[0] != "odd" and g[1] == "rn"
            return f"{texts[0]}.astype({g[0]})" if is_plain else f"floats.from_int({texts[0]}, {g[0]!r}, {g[1]!r})"
        if operation not in _FLOATS:
            return f"floats.{operation}({', '.join([*texts, *map(repr, g)])})"
        return _FLOATS[operation].format(*texts, all=", ".join(texts), rest=", ".join(texts[1:]), g=g)


_TIGHT = frozenset(("add", "sub", "mul", "div", "neg", "compare", "widen", "convert", "from_int"))
"""Operations of floats that bind their operands tighter than operators do."""


def _is_loose(node: Node) -> bool:
    """Return whether an expression needs brackets in another one."""
    if node.given is not None:
        return node.operation in ("add", "sub", "mul", "div", "neg", "compare")
    return node.operation in _INFIX


def _compared(relation: str, a: str, b: str) -> str:
    """Return the expression of a comparison of floats; numpy's are false on a NaN, but for != ."""
    unordered = f"isnan({a}) | isnan({b})"
    if relation in ("uno", "ord"):
        return unordered if relation == "uno" else f"~({unordered})"
    if relation in ("one", "une"):
        return f"({a} != {b}) & ~({unordered})" if relation == "one" else f"({a} != {b}) | {unordered}"
    plain = f"{a} {_ORDERED['o' + relation[1:]]} {b}"
    return plain if relation[0] == "o" else f"({plain}) | {unordered}"


def write_meaning(meaning: Meaning, e: Emitter, i: Instruction) -> None:
    """Write the source of an instruction that has a meaning."""
    b = Expressions(e)
    meaning(b, i)
    b.finish()
