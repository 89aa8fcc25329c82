"""What the templates are filled with: an extension's operations as C++ tables and texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cutepy.aot.expressions import SM_COUNT, Expression
from cutepy.aot.names import SpecError
from cutepy.aot.objects import CompiledVariant
from cutepy.aot.spec import Op
from cutepy.aot.variant import Variant, order_of
from cutepy.dsl.packed import dlpack_type
from cutepy.host.specs import TensorSpec

CPP_NUMBERS = {"int": "int64_t", "float": "double", "bool": "bool"}


def op_tables(op: Op, compiled: Sequence[CompiledVariant]) -> dict[str, Any]:
    """Give what `kernels.h.jinja` is filled with for an operation."""
    functions = _Functions(op)
    argument_lists = _ArgumentLists(op)
    requirement_lists = _RequirementLists(op, functions)
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for index, item in enumerate(compiled):
        variant = item.variant
        # Variants of equal specs are one group: tensors are compared with them once.
        key = tuple(repr(variant.tensors[name]) for name in op.tensors)
        if key not in groups:
            groups[key] = _group(op, variant, len(groups))
        groups[key]["kernels"][tuple(variant.requires)] += 1
        groups[key]["variants"].append(
            {
                "index": index,
                "requirements": requirement_lists.add(variant.requires),
                "requirement_count": len(variant.requires),
                "when": functions.add(variant.when, "bool", "when") if variant.when else "nullptr",
                "cost": functions.add(variant.cost, "double", "cost") if variant.cost else "nullptr",
                "arguments": argument_lists.add(item),
                "count": len(item.parameters),
            }
        )
    return {
        "name": op.name,
        "doc": op.doc or f"Run {op.name}.",
        "tensor_names": _strings(op.tensors),
        "name_names": _strings(op.names or ("",)),
        "tensor_count": len(op.tensors),
        "result_count": len(op.results),
        "written": sum(1 << op.tensors.index(name) for name in (*op.results, *op.mutates)),
        "zero_if_empty": op.zero_if_empty,
        "name_count": len(op.names),
        "variants": compiled,
        "functions": functions.made,
        "argument_lists": argument_lists.made,
        "requirement_lists": requirement_lists.made,
        "groups": list(groups.values()),
        "inputs": op.inputs,
        "results": list(op.results),
        "numbers": list(op.numbers),
        "parameters": list(op.parameters),
    }


def limits(ops: Sequence[Op], compiled: Mapping[str, Sequence[CompiledVariant]]) -> dict[str, int]:
    """Give the sizes of the arrays in `dispatch.h.jinja`."""
    specs = [spec for op in ops for variant in op.variants for spec in variant.tensors.values()]
    return {
        "max_rank": max(len(spec.shape) for spec in specs),
        "max_tensors": max(len(op.tensors) for op in ops),
        "max_names": max(max(len(op.names) for op in ops), 1),
        "max_arguments": max(len(item.parameters) for items in compiled.values() for item in items),
    }


class _Functions:
    """Conditions and costs as C++ functions, each text once."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._names: dict[tuple[str, str], str] = {}
        self.made: list[dict[str, Any]] = []

    def add(self, text: str, cpp_type: str, kind: str) -> str:
        """Give the address of the function of an expression."""
        key = (text, cpp_type)
        if key not in self._names:
            expression = Expression(text)
            name = self._names[key] = f"{self._op.name}_{kind}_{len(self.made)}"
            extents = [(self._op.names.index(x), x) for x in expression.names if x != SM_COUNT]
            cpp = expression.cpp if cpp_type == "bool" else f"static_cast<double>({expression.cpp})"
            self.made.append({"name": name, "type": cpp_type, "text": text, "extents": extents, "cpp": cpp})
        return f"&{self._names[key]}"


class _RequirementLists:
    """What callers must meet, each list once."""

    def __init__(self, op: Op, functions: _Functions) -> None:
        self._op = op
        self._functions = functions
        self._names: dict[tuple[str, ...], str] = {(): "nullptr"}
        self.made: list[dict[str, Any]] = []

    def add(self, requires: Sequence[str]) -> str:
        """Give the name of the array of a variant's requirements."""
        key = tuple(requires)
        if key not in self._names:
            self._names[key] = f"kRequirements{len(self.made)}_{self._op.name}"
            items = [{"function": self._functions.add(text, "bool", "requires"), "text": text} for text in key]
            self.made.append({"name": self._names[key], "conditions": items})
        return self._names[key]


class _ArgumentLists:
    """What kernels are passed, each list once."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._names: dict[str, str] = {}
        self.made: list[dict[str, str]] = []

    def add(self, item: CompiledVariant) -> str:
        """Give the name of the array of a kernel's arguments."""
        kinds = {parameter.name: parameter.kind for parameter in item.variant.parameters}
        if list(kinds) != list(item.parameters):
            raise SpecError(
                f"{item.symbol}: the compiled function takes {', '.join(item.parameters)}, and its examples "
                f"describe {', '.join(kinds)}"
            )
        cpp = "{" + ", ".join(self._argument(name, kind) for name, kind in kinds.items()) + "}"
        if cpp not in self._names:
            self._names[cpp] = f"kArguments{len(self.made)}_{self._op.name}"
            self.made.append({"name": self._names[cpp], "cpp": cpp})
        return self._names[cpp]

    def _argument(self, name: str, kind: str) -> str:
        if kind == "tensor":
            return f"{{Argument::kTensor, {self._op.tensors.index(name)}}}"
        if kind == "none":
            return "{Argument::kNone, 0}"
        if name in self._op.numbers:
            return f"{{Argument::kNumber, {list(self._op.numbers).index(name)}}}"
        return "{Argument::kSmCount, 0}"


def _group(op: Op, variant: Variant, index: int) -> dict[str, Any]:
    forms = [(name, variant.tensors[name]) for name in op.tensors]
    return {
        "index": index,
        "text": "; ".join(form_text(name, spec) for name, spec in forms),
        "forms": [{"text": form_text(name, spec), "cpp": _form(op, variant, spec)} for name, spec in forms],
        "kernels": Counter(),
        "variants": [],
    }


def form_text(name: str, spec: TensorSpec) -> str:
    """Describe an argument in a line.

    Examples
    --------
    >>> form_text("a", TensorSpec("float16", ("m", "k"), strides=("lda", 1), divisibility={"k": 8}))
    'a: float16 (m, k % 8):(lda, 1), align 16'
    """
    return f"{name}: {repr(spec).removeprefix('TensorSpec(').removesuffix(')')}"


def _form(op: Op, variant: Variant, spec: TensorSpec) -> str:
    """Write a `Form`."""
    code, bits = dlpack_type(spec.dtype)
    divisibility = _divisibility(variant)

    def number(value: int | str) -> str:
        if isinstance(value, int):
            return f"is({value})"
        return f"named({op.names.index(value)}, {divisibility.get(value, 1)})"

    shape = ", ".join(map(number, spec.shape))
    strides = ", ".join(["compact()"] * len(spec.shape) if spec.strides is None else map(number, spec.strides))
    order = ", ".join(map(str, order_of(spec)))
    numbers = f"{{{shape}}}, {{{strides}}}, {{{order}}}"
    return f"{{{{{code}, {bits}, 1}}, {len(spec.shape)}, {spec.align}, {numbers}}}"


def _divisibility(variant: Variant) -> dict[str, int]:
    combined: dict[str, int] = {}
    for spec in variant.tensors.values():
        for name, divisor in spec.divisibility.items():
            combined[name] = math.lcm(combined.get(name, 1), divisor)
    return combined


def _strings(names: Sequence[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in names) + "}"
