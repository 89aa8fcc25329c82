"""Contexts of the templates: an extension's operations as C++ tables and texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cutepy.aot.names import SpecError
from cutepy.aot.objects import CompiledVariant
from cutepy.aot.spec import Op
from cutepy.aot.symbols import SM_COUNT, TracedExpression, parameters
from cutepy.aot.variant import Variant, order_of
from cutepy.host.specs import TensorSpec
from cutepy.runtime.dtypes import dlpack_type

CPP_NUMBERS = {"int": "int64_t", "float": "double", "bool": "bool"}


def op_tables(op: Op, compiled: Sequence[CompiledVariant]) -> dict[str, Any]:
    """Return the context of `kernels.h.jinja` for an operation."""
    functions = _Functions(op)
    argument_lists = _ArgumentLists(op)
    requirement_lists = _RequirementLists(op, functions)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index, item in enumerate(compiled):
        variant = item.variant
        # Variants for the same calls are one group: tensors are compared with them once.
        group = groups.setdefault(op.key_of(variant), _group(op, variant, len(groups)))
        requirements = requirement_lists.add(variant)
        group["kernels"][tuple(traced.text for traced, _ in variant.requirements)] += 1
        group["variants"].append(
            {
                "index": index,
                "requirements": requirements,
                "requirement_count": len(variant.requirements),
                "cost": functions.cost(variant.traced_cost, parameters(variant.cost)) if variant.cost else "nullptr",
                "arguments": argument_lists.add(item),
                "count": len(item.parameters),
            }
        )
    return {
        "name": op.name,
        "doc": op.doc or f"Run {op.name}.",
        "tensor_names": _strings(op.tensors),
        "name_names": _strings(op.names or ("",)),
        "choice_names": _strings(op.choices or ("",)),
        "tensor_count": len(op.tensors),
        "result_count": len(op.results),
        "choice_count": len(op.choices),
        "written": _bits(op.tensors, (*op.results, *op.mutates)),
        "optional": _bits(op.tensors, op.optional),
        "zero_if_empty": op.zero_if_empty,
        "name_count": len(op.names),
        "variants": compiled,
        "functions": functions.made,
        "argument_lists": argument_lists.made,
        "requirement_lists": requirement_lists.made,
        "groups": list(groups.values()),
        "results": list(op.results),
        "numbers": list(op.numbers),
        "choices": list(op.choices),
        "parameters": list(op.parameters),
    }


def limits(ops: Sequence[Op], compiled: Mapping[str, Sequence[CompiledVariant]]) -> dict[str, int]:
    """Return the array sizes of `dispatch.h.jinja`."""
    specs = [spec for op in ops for variant in op.variants for spec in variant.tensors.values()]
    return {
        "max_rank": max(len(spec.shape) for spec in specs),
        "max_tensors": max(len(op.tensors) for op in ops),
        "max_names": max(max(len(op.names) for op in ops), 1),
        "max_arguments": max(len(item.parameters) for items in compiled.values() for item in items),
    }


class _Functions:
    """Conditions and costs as C++ functions, each once."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._names: dict[str, str] = {}
        self.made: list[dict[str, Any]] = []

    def cost(self, traced: TracedExpression | None, names: Sequence[str]) -> str:
        """Return the address of a cost's function."""
        assert traced is not None
        unused = "" if SM_COUNT in names else "[[maybe_unused]] "
        extents = [name for name in names if name != SM_COUNT]
        return self._add("cost", "double", traced, extents, f", {unused}int64_t sm_count")

    def requirement(self, traced: TracedExpression, names: Sequence[str]) -> str:
        """Return the address of a requirement's function."""
        return self._add("requires", "bool", traced, names, "")

    def _add(self, kind: str, cpp_type: str, traced: TracedExpression, names: Sequence[str], more: str) -> str:
        key = "\n".join((cpp_type, *traced.lines))
        if key not in self._names:
            name = self._names[key] = f"{self._op.name}_{kind}_{len(self.made)}"
            extents = [(self._op.names.index(x), x) for x in names]
            unused = "" if extents else "[[maybe_unused]] "
            taken = f"{unused}const int64_t* names{more}"
            self.made.append(
                {"name": name, "type": cpp_type, "parameters": taken, "extents": extents, "lines": traced.lines}
            )
        return f"&{self._names[key]}"


class _RequirementLists:
    """Lists of requirements, each list once."""

    def __init__(self, op: Op, functions: _Functions) -> None:
        self._op = op
        self._functions = functions
        self._names: dict[tuple[str, ...], str] = {(): "nullptr"}
        self.made: list[dict[str, Any]] = []

    def add(self, variant: Variant) -> str:
        """Return the name of the array of a variant's requirements."""
        key = tuple(traced.text for traced, _ in variant.requirements)
        if key not in self._names:
            self._names[key] = f"kRequirements{len(self.made)}_{self._op.name}"
            items = [
                {
                    "function": self._functions.requirement(traced, names),
                    "names": f"0x{_bits(self._op.names, names):x}u",
                    "text": traced.text,
                }
                for traced, names in variant.requirements
            ]
            self.made.append({"name": self._names[key], "conditions": items})
        return self._names[key]


class _ArgumentLists:
    """Lists of kernel arguments, each list once."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._names: dict[str, str] = {}
        self.made: list[dict[str, str]] = []

    def add(self, item: CompiledVariant) -> str:
        """Return the name of the array of a kernel's arguments."""
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
    forms = [(name, variant.tensors.get(name)) for name in op.tensors]
    described = [form_text(name, spec) for name, spec in forms]
    choices = {name: variant.choices.get(name) for name in op.choices}
    chosen = [f"{name}: {value}" for name, value in choices.items() if value is not None]
    return {
        "index": index,
        "text": "; ".join([*(text for (_, spec), text in zip(forms, described, strict=True) if spec), *chosen]),
        "forms": [
            {"text": text, "cpp": _form(op, variant, spec) if spec else "{{}, -1, 1, {}, {}, {}}"}
            for (_, spec), text in zip(forms, described, strict=True)
        ],
        "choices": "{" + ", ".join("nullptr" if v is None else f'"{v}"' for v in choices.values() or (None,)) + "}",
        "kernels": Counter(),
        "variants": [],
    }


def form_text(name: str, spec: TensorSpec | None) -> str:
    """Describe an argument in a line: its extents and strides, and the requirements on them.

    Examples
    --------
    >>> form_text("a", TensorSpec("float16", ("m", "k"), strides=("lda", 1), divisibility={"k": 8}))
    'a: float16 (m, k):(lda, 1), k a multiple of 8, aligned to 16 bytes'
    """
    if spec is None:
        return f"{name}: none"
    layout = repr(replace(spec, divisibility={}, nonempty=())).removeprefix("TensorSpec(").partition(", align ")[0]
    by_divisor: dict[int, list[str]] = {}
    for extent in dict.fromkeys((*spec.names, *spec.stride_names)):
        by_divisor.setdefault(spec.divisibility.get(extent, 1), []).append(extent)
    multiples = [
        f"{_joined(names)} {'a multiple' if len(names) == 1 else 'multiples'} of {divisor}"
        for divisor, names in by_divisor.items()
        if divisor > 1
    ]
    positive = [extent for extent in spec.names if extent in spec.nonempty]
    required = [*multiples, *([f"{_joined(positive)} not 0"] if positive else [])]
    return ", ".join([f"{name}: {layout}", *required, f"aligned to {spec.align} bytes"])


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _form(op: Op, variant: Variant, spec: TensorSpec) -> str:
    """Write a `Form`."""
    code, bits = dlpack_type(spec.dtype)
    divisibility = variant.divisibility

    def number(value: int | str) -> str:
        if isinstance(value, int):
            return f"is({value})"
        return f"named({op.names.index(value)}, {divisibility.get(value, 1)})"

    shape = ", ".join(map(number, spec.shape))
    strides = ", ".join(["compact()"] * len(spec.shape) if spec.strides is None else map(number, spec.strides))
    order = ", ".join(map(str, order_of(spec)))
    numbers = f"{{{shape}}}, {{{strides}}}, {{{order}}}"
    return f"{{{{{code}, {bits}, 1}}, {len(spec.shape)}, {spec.align}, {numbers}}}"


def _bits(names: Sequence[str], chosen: Sequence[str]) -> int:
    return sum(1 << names.index(name) for name in chosen)


def _strings(names: Sequence[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in names) + "}"
