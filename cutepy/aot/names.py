"""Checks of names and texts in a description, which become Python, C and C++."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Collection

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LABEL = re.compile(r"[A-Za-z0-9_]*")
# PEP 440, in its normal form.
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+([._-][a-z0-9]+)*)?")
# Reserved words in the generated sources: C's and C++'s, and names of its own functions.
_RESERVED = frozenset(
    "alignas alignof asm auto bool break case catch char class const constexpr continue decltype default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new "
    "noexcept nullptr operator private protected public register return short signed sizeof static struct switch "
    "template this throw true try typedef typeid typename union unsigned using virtual void volatile while "
    "NULL Op Tensor Text Value address below call check choices describe exit floor_div floor_mod fprintf guard "
    "guarded inputs int64_t keys names numbers on_gpu printf refuse_grad results sm_count std stderr stream tensors "
    "sixth sixth_root text torch".split()
)
# Names of other packages and namespaces.
_PACKAGES = frozenset("aten c10 cutepy cutlass numpy prim pytest tensor".split()) | sys.stdlib_module_names


class SpecError(ValueError):
    """Error of an invalid description to export."""


def check_identifier(what: str, name: str) -> None:
    """Refuse an invalid identifier of the generated sources."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in _RESERVED:
        raise SpecError(
            f"{what} must be an identifier of Python and C++ that the generated sources do not reserve, got {name!r}"
        )


def check_line(what: str, text: str) -> None:
    """Refuse a text that would end a string or a comment of the generated sources."""
    if any(part in text for part in ('"', "\\", "\n", "*/")):
        raise SpecError(f"{what} must be one line without double quotes, backslashes and */, got {text!r}")


def check_package(name: str) -> None:
    """Refuse an invalid name of a package, a namespace and a prefix."""
    check_identifier("an extension's name", name)
    if name in _PACKAGES:
        raise SpecError(f"an extension's name must not be that of another package or namespace, got {name!r}")


def check_label(what: str, text: str) -> None:
    """Refuse an invalid suffix of a symbol and a file name."""
    if not _LABEL.fullmatch(text):
        raise SpecError(f"{what} must be of letters, digits and underscores, got {text!r}")


def check_version(text: str) -> None:
    """Refuse an invalid package version."""
    if not _VERSION.fullmatch(text):
        raise SpecError(f"version must be such as 1.2.3 or 1.2.3rc1 (PEP 440), got {text!r}")


def check_reference(what: str, text: str, known: Collection[str]) -> None:
    """Refuse a reference that is no Python expression over known names."""
    if "\n" in text:
        raise SpecError(f"{what} must be one line, got {text!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise SpecError(f"{what} must be a Python expression, got {text!r}: {error.msg}") from None
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    if unknown := used - bound - {*known, "torch"} - set(dir(builtins)):
        raise SpecError(f"{what} uses {', '.join(sorted(unknown))}; it may use {', '.join(known)} and torch")
