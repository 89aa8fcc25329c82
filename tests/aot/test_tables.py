"""Contexts of the templates: C++ tables of all operations that the tests export, and of the exported GEMM's tiles."""

import pprint
from functools import cache

import pytest

from cutepy.aot import tables
from cutepy.aot.gemm_tiles import EXPORTED, config_of
from cutepy.aot.names import SpecError
from cutepy.aot.objects import CompiledVariant
from cutepy.kernels.gemm import GemmSignature
from tests.messages import pins, refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl


@cache
def extension(name):
    from tests.aot import conftest, dispatched

    return {"dispatched": dispatched, "example": conftest}[name].described()


OPS = [
    *(("dispatched", name) for name in ("by_requires", "by_both", "strides")),
    *(("example", name) for name in ("scale", "add_to", "count", "gemm")),
]


def operation(of, name):
    return next(op for op in extension(of).ops if op.name == name)


def stand_ins(op):
    """Give variants as if compiled: their tables need the names of the entries' parameters only."""
    return [
        CompiledVariant(variant, f"entry{n}", b"", tuple(each.name for each in variant.parameters), (8, 6))
        for n, variant in enumerate(op.variants)
    ]


@pytest.mark.parametrize(("of", "name"), OPS)
def test_tables_of_operations(of, name):
    op = operation(of, name)
    context = tables.op_tables(op, compiled := stand_ins(op))
    assert context.pop("variants") == compiled
    pins(pprint.pformat(context, width=160, sort_dicts=False))
    pins(str(tables.limits([op], {name: compiled})))


def test_equal_conditions_are_one_function():
    """Of three variants the last two have one cost, and both require what the last one requires first."""
    op = operation("dispatched", "by_requires")
    context = tables.op_tables(op, stand_ins(op))
    of_kind = {
        kind: {f"&{each['name']}": each["lines"] for each in context["functions"] if each["type"] == kind}
        for kind in ("bool", "double")
    }
    assert len(of_kind["bool"]) == len(of_kind["double"]) == 2
    hundred, thousand = of_kind["bool"]
    called = [[item["function"] for item in each["conditions"]] for each in context["requirement_lists"]]
    assert called == [[hundred], [hundred, thousand]]
    dear, cheap = of_kind["double"]
    assert [each["cost"] for each in context["groups"][0]["variants"]] == [dear, cheap, cheap]


def test_an_entry_of_other_parameters_is_refused():
    op = operation("example", "scale")
    wrong = CompiledVariant(op.variants[0], "entry", b"", ("out", "x", "alpha"), (8, 6))
    with refuses(SpecError):
        tables.op_tables(op, [wrong])


def test_the_exported_tiles():
    """The configurations of all choices, by the names of their kernels."""
    half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    narrow = GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e4m3fn", out_dtype="bfloat16", batch_modes=1)
    pins("\n".join(f"{choice}\n  {config_of(choice, half).name}" for choice in EXPORTED))
    pins("\n".join(config_of(choice, narrow).name for choice in EXPORTED))
