"""Read a static CuTe value back from the spelling of its C++ type in a g++ diagnostic."""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(r"\s*([A-Za-z_][\w:]*|-?\d+|[<>,&])")


def value_of_type(spelling: str) -> Any:
    """The JSON value that a type spells (`cute::C<4>` is 4), or None where the type does not hold the value.

    Integers and booleans come back bare, everything else as a string of the vectors' notation.
    """
    tokens = [t for t in _TOKEN.findall(spelling) if t not in ("const", "&")]
    try:
        kind, arguments = _tree(tokens)
    except IndexError:
        return None
    if kind in _CONSTANTS:
        text = arguments[-1][0]
        return {"true": True, "false": False}.get(text) if text in ("true", "false") else int(text)
    return _text((kind, arguments))


def value_of_spelling(answer: dict[str, Any]) -> Any:
    """A JSON object of a program's answer; `{"type": ...}` holds what `__PRETTY_FUNCTION__` says of a type T."""
    if answer.keys() != {"type"}:
        return answer
    return value_of_type(answer["type"].partition("spelled<")[2].removesuffix(">()"))


_CONSTANTS = ("cute::C", "cute::integral_constant", "cute::constant")
Tree = tuple[str, list[Any]]


def _tree(tokens: list[str]) -> Tree:
    """Parse `name<argument, ...>`; consumes the tokens."""
    name = tokens.pop(0)
    arguments: list[Tree] = []
    if tokens and tokens[0] == "<":
        tokens.pop(0)
        while tokens[0] != ">":
            arguments.append(_tree(tokens))
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
    return name, arguments


def _text(tree: Tree) -> str | None:
    kind, arguments = tree
    if kind in _CONSTANTS:
        return arguments[-1][0]
    if kind == "cute::Underscore":
        return "_"
    if kind == "cute::Swizzle":
        return f"Sw<{','.join(a[0] for a in arguments)}>"
    if kind == "cute::smem_ptr_flag_bits":
        return f"smem_ptr[{arguments[0][0]}b](unset)"
    if kind == "cute::ScaledBasis":
        return _join("{}" + "".join(f"@{a[0]}" for a in reversed(arguments[1:])), arguments[:1])
    if kind == "cute::Layout":
        return _join("{}:{}", arguments)
    if kind == "cute::ComposedLayout":
        return _join("({}) o {} o {}" if arguments[0][0] == "cute::ComposedLayout" else "{} o {} o {}", arguments)
    if kind in ("cute::tuple", "cute::ArithmeticTuple"):
        brackets = "<{}>" if any(map(_is_tiler, arguments)) else "({})"
        return _join(brackets.format(",".join(["{}"] * len(arguments))), arguments)
    return None


def _join(form: str, trees: list[Tree]) -> str | None:
    texts = [_text(tree) for tree in trees]
    return None if None in texts else form.format(*texts)


def _is_tiler(tree: Tree) -> bool:
    """Return True if a tuple's entry holds a layout or an underscore, at any depth."""
    kind, arguments = tree
    if kind in ("cute::Underscore", "cute::Layout", "cute::ComposedLayout", "cute::Swizzle"):
        return True
    return kind == "cute::tuple" and any(map(_is_tiler, arguments))
