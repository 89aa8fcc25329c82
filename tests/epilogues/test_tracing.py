"""A function becomes a graph that prints, is read back and compares; what it can't express is refused at its line."""

import inspect
import math
import pickle

import numpy as np
import pytest

import cutepy
from cutepy import epilogues
from cutepy.epilogues import Column, EpilogueError, Graph, Integer, Row, Scalar, Tile, epilogue, relu, silu, where
from cutepy.epilogues.symbols import is_symbol
from cutepy.epilogues.tracing import RESERVED
from tests.messages import refuses

torch = pytest.importorskip("torch")

CAPTURED = torch.ones(4)


@cutepy.epilogue
def gated(acc, bias: Row, scale: Scalar, residual: Tile):
    gate, up = acc.interleaved(2)
    return silu(gate * scale + bias) * up + residual


def test_it_prints_operands_graph_and_results():
    assert str(gated) == repr(gated)
    assert repr(gated).splitlines() == [
        "epilogue gated(bias: row/2, scale: scalar, residual: tile/2)",
        "  v0 = acc()",
        "  v1 = operand('bias')",
        "  v2 = operand('scale')",
        "  v3 = operand('residual')",
        "  v4 = part(v0, 0)",
        "  v5 = part(v0, 1)",
        "  v6 = mul(v4, v2)",
        "  v7 = add(v6, v1)",
        "  v8 = sigmoid(v7)",
        "  v9 = mul(v7, v8)",
        "  v10 = mul(v9, v5)",
        "  v11 = add(v10, v3)",
        "  return v11",
    ]


def constants(function):
    return [node.value for node in epilogue(function).graph.nodes if node.op == "const"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda acc: acc + 2**31, [2.0**31]),
        (lambda acc: 3000000000 * acc, [3e9]),
        (lambda acc: where(acc < 2**32 - 1, acc, 2**63), [2.0**32 - 1, 2.0**63]),
        (lambda acc: epilogues.clamp(acc, -(2**40), 2**40), [-(2.0**40), 2.0**40]),
        (lambda acc: torch.add(acc, 2**40), [2.0**40]),
        (lambda acc: acc + where(acc.row > 2, 3000000000, 1.0), [2, 3e9, 1.0]),
        (lambda acc: acc + (acc.row < 3e9), [3e9]),
        (lambda acc: acc + (acc.row ^ 0xFFFFFFFF) * 0x85EBCA6B, [-1, 0x85EBCA6B - 2**32]),
        (lambda acc: acc + acc.row * True, [1]),
        (lambda acc: acc * True, [1.0]),
        (lambda acc: where((acc > 0.0) & True, acc, 0), [0.0, True]),
    ],
)
def test_numbers_have_the_type_of_what_they_meet(function, expected):
    assert sorted(map(repr, constants(function))) == sorted(map(repr, expected))


@pytest.mark.parametrize("number", [*(kind(2.5) for kind in (np.float64, np.float32, np.float16)), np.array(2.5, "f4")])
def test_numpys_floats_are_pythons(number):
    for function in (
        lambda acc: acc * number,
        lambda acc: number * acc,
        lambda acc: torch.mul(acc, np.float32(number.item())),
    ):
        assert repr(constants(function)) == "[2.5]"
        graph = epilogue(function).graph
        assert Graph.parse(graph.text) == Graph.parse(graph.line) == graph
        assert "\n" not in graph.line


def test_numpys_integers_and_truth_values_are_pythons():
    three, yes = np.int64(3), np.bool_(True)

    def by_numpy(acc):
        x = (acc.row + three) // three % np.int32(5) << np.uint8(1)
        kept = where((acc > np.int8(0)) & yes, acc ** np.int64(2), epilogues.clamp(acc, np.float32(-0.5), three))
        return kept ** np.float64(0.5) + x, kept.sum(np.int64(1))

    def by_python(acc):
        x = (acc.row + 3) // 3 % 5 << 1
        kept = where((acc > 0) & True, acc**2, epilogues.clamp(acc, -0.5, 3))
        return kept**0.5 + x, kept.sum(1)

    assert epilogue(by_numpy) == epilogue(by_python)


def test_equal_graphs_are_equal_epilogues():
    @epilogue
    def one(acc):
        return acc * acc + acc * acc

    @epilogue
    def other(acc):
        square = acc * acc
        return square + square

    assert one == other
    assert hash(one) == hash(other)
    assert one != relu
    assert one.graph != relu.graph


def test_zeros_of_either_sign_and_types_are_constants_of_their_own():
    @epilogue
    def zeros(acc):
        return where(acc < 0.0, -0.0, 0.0) + where(acc.row > 0, 1, 2) + acc * 1.0

    assert [repr(node.value) for node in zeros.graph.nodes if node.op == "const"] == [
        "0.0",
        "-0.0",
        "0",
        "1",
        "2",
        "1.0",
    ]
    assert Graph.parse(zeros.text) == zeros.graph
    assert Graph.parse(zeros.text.replace("-0.0", "0.0")) != zeros.graph
    assert Graph.parse(zeros.text.replace("(1.0)", "(2.0)")) != zeros.graph


@pytest.mark.parametrize(
    "name", sorted(n for n in epilogues.__all__ if isinstance(getattr(epilogues, n), epilogues.Epilogue))
)
def test_the_library_reads_back_and_pickles(name):
    each = getattr(epilogues, name)
    assert Graph.parse(each.text) == each.graph
    assert pickle.loads(pickle.dumps(each)) is each


def test_operands_take_the_width_of_what_they_meet():
    @epilogue
    def both(acc, early: Row, late: Row, mixed: Row):
        gate, up = (acc + early).interleaved(2)
        return gate * up + late * mixed

    assert [operand.width for operand in both.operands] == [1, 2, 2]


def test_columns_count_what_they_are_asked_of():
    @epilogue
    def counted(acc):
        gate, _ = acc.interleaved(2)
        return gate + gate.column + acc.row

    assert "column_index/2()" in counted.text
    assert Graph.parse(counted.text) == counted.graph


def test_annotations_may_be_text():
    namespace = {"epilogues": epilogues}
    code = "from __future__ import annotations\ndef f(acc, x: epilogues.Row, n: 'Integer'):\n    return acc + x + n\n"
    exec(compile(code, "<text>", "exec"), namespace)
    assert [str(o) for o in epilogue(namespace["f"]).operands] == ["x: row", "n: integer"]


def test_torchs_functions_are_the_librarys():
    @epilogue
    def by_torch(acc):
        return torch.nn.functional.silu(acc) + torch.relu(acc) + torch.where(acc > 1, torch.exp(acc), 2.0)

    @epilogue
    def by_library(acc):
        return silu(acc) + relu(acc) + where(acc > 1, epilogues.exp(acc), 2.0)

    assert by_torch == by_library


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.logical_not(x % 3),
        lambda x, y: torch.logical_and(x, y * 2),
        lambda x, y: torch.logical_or(x % 2, y % 3),
        lambda x, y: torch.logical_xor(x % 2, y % 3),
        lambda x, y: torch.logical_xor(x % 2, y > 1),
        lambda x, y: torch.logical_and(x > 1, y < 2),
        lambda x, y: torch.logical_not(0.5 * x),
        lambda x, y: torch.logical_or(x * 0.0, y / 0.0),  # NaN is true
        lambda x, y: ~torch.logical_not(x),
    ],
)
def test_torchs_logic_is_of_truth(function):
    expected = function(torch.arange(4, dtype=torch.int32)[:, None], torch.arange(5, dtype=torch.int32))
    got = epilogue(lambda acc: acc * 0.0 + function(acc.row, acc.column))(torch.ones(4, 5))
    assert torch.equal(got, expected.float().expand(4, 5))


@pytest.mark.parametrize("number", [0, 1, -2, 0.0, 0.5, float("nan"), True, False, np.float32(0), np.int64(3)])
def test_numbers_have_pythons_truth_in_torchs_logic(number):
    """As a method takes them; torch's own functions want tensors."""

    def computed(operation, of):
        return epilogue(lambda acc: acc * 0.0 + operation(of(acc.row), number))(torch.ones(4, 1))

    for name in ("logical_and", "logical_or", "logical_xor"):
        expected = getattr(torch, name)(torch.arange(4)[:, None], torch.tensor(bool(number)))
        for of in (lambda row: row, lambda row: row > 0):
            assert torch.equal(computed(lambda x, y, name=name: getattr(x, name)(y), of), expected.float())


def test_powers_by_floats_are_floats():
    traced = epilogue(lambda acc: acc + (acc.row**2.0) * (1 << 17))
    acc = torch.zeros(200, 1)
    torch.testing.assert_close(traced(acc), torch.arange(200.0)[:, None] ** 2 * 2**17)


def test_powers_of_two():
    @epilogue
    def powers(acc):
        return 2**acc + 2.0 ** (-acc) + torch.pow(2, acc)

    acc = torch.randn(4, 8)
    torch.testing.assert_close(powers(acc), 2 * 2**acc + 2**-acc)


def test_parts_are_eight_at_most():
    def parted(acc, times):
        for _ in range(times):
            acc = acc.interleaved(2)[1]
        return acc

    assert epilogue(lambda acc: parted(acc, 3)).graph.widest == 8
    assert epilogue(lambda acc: acc.interleaved(4)[1].interleaved(2)[0]).graph.widest == 8
    for deep in (lambda acc: parted(acc, 4), lambda acc: acc.interleaved(4)[1].interleaved(4)[2]):
        with refuses(EpilogueError) as caught:
            epilogue(deep)
        assert __file__ in str(caught.value)
        assert "interleaved" in str(caught.value).splitlines()[-1]


def refused_if(acc):
    if acc > 0:
        return acc
    return -acc


def refused_chain(acc):
    return where(0 < acc < 1, acc, 0.0)


def refused_element(acc):
    return acc[0]


def refused_unpacking(acc):
    gate, up = acc
    return gate * up


def refused_capture(acc):
    return acc + CAPTURED


def refused_capture_on_the_left(acc):
    return CAPTURED + acc


def refused_torch(acc):
    return torch.softmax(acc, -1)


def refused_torch_option(acc):
    return torch.nn.functional.softplus(acc, beta=2)


def refused_method(acc):
    return acc.mean()


def refused_width(acc, residual: Tile):
    gate, up = acc.interleaved(2)
    return gate * up + (acc + residual).interleaved(4)[0]


def refused_operand_width(acc, bias: Row):
    gate, up = (acc + bias).interleaved(2)
    return gate * up + bias


def refused_reduction(acc):
    return acc / acc.sum(1)


def refused_unread(acc, bias: Row):
    return acc


def refused_annotation(acc, bias):
    return acc + bias


def refused_default(acc, bias: Row = 1.0):
    return acc + bias


def refused_fraction(acc, n: Integer = 1.5):
    return acc + n


def refused_wide_default(acc, n: Integer = 2**40):
    return acc + n


def refused_star(acc, *rows: Row):
    return acc


def refused_underscore(acc, _b: Scalar):
    return acc * _b


def refused_position(acc, bias: Row, /):
    return acc + bias


def refused_all_positions(*acc):
    return acc[0]


def refused_no_position(*, acc):
    return acc


def refused_empty_tuple(acc):
    return ()


def refused_empty_dict(acc):
    return {}


def refused_names(acc):
    return {1: acc, "1": acc * 2}


def refused_digits(acc):
    return {"0": acc}


def refused_no_name(acc):
    return {"": acc}


def refused_result(acc, bias: Row):
    return acc, bias


def refused_truth(acc):
    return acc > 0


def refused_nothing(acc):
    acc + 1


def refused_power(acc):
    return acc**-2


def refused_dtype(acc):
    return acc.to(torch.int8)


def refused_shift(acc):
    return acc >> 2


def refused_logic(acc):
    return where(acc & 1, acc, 0.0)


def refused_condition(acc):
    return where(acc, acc, 0.0)


def refused_constant(acc):
    return acc * 1e39


def refused_huge(acc):
    return acc * 10**400


def refused_wide(acc):
    return acc + acc.row * 2**32


def refused_comparison(acc):
    return where(acc.row < 3000000000, acc, 0.0)


def refused_choice(acc):
    return acc * where(acc > 0, 3000000000, 1)


def refused_seed(acc):
    return epilogues.dropout(acc, 0.5, 2**40)


def refused_array(acc):
    return acc + np.ones(4)


def refused_exponent(acc):
    return acc**acc


def refused_float(acc):
    return acc * math.exp(acc)


def refused_numpy(acc):
    return np.exp(acc)


def refused_numpy_condition(acc):
    return np.where(acc > 0, acc, 0.0)


def refused_numpy_bounds(acc):
    return np.clip(acc, 0.0, 1.0)


def refused_numpy_sum(acc):
    return np.sum(acc, axis=1)


def refused_numpy_array(acc):
    return acc + np.asarray(acc)


def refused_int(acc):
    return acc * int(acc)


def refused_index(acc):
    return acc * [1.0, 2.0][acc.row % 2]


def refused_length(acc):
    return acc / len(acc)


def refused_format(acc):
    return acc + len(f"{acc:.2f}")


def refused_axis(acc):
    return acc.sum(axis=1)


def refused_number(acc):
    return epilogues.uniform(1.0, 3) * acc


def refused_float_seed(acc):
    return epilogues.dropout(acc, 0.5, 1.5)


def refused_scalar_seed(acc, seed: Scalar):
    return epilogues.dropout(acc, 0.5, seed)


def refused_parts(acc, column: Column):
    even, _ = column.interleaved(2)
    return acc + even


def refused_in_place(acc):
    torch.relu_(acc)
    return acc


def refused_in_place_by_name(acc):
    y = acc + 1.0
    torch.nn.functional.relu_(y)
    return y


def refused_in_place_operator(acc):
    torch.ops.aten.relu_(acc)
    return acc


def refused_in_place_overload(acc):
    torch.ops.aten.exp_.default(acc)
    return acc


def refused_in_place_method(acc):
    acc.relu_()
    return acc


def refused_in_place_bound(acc):
    torch.clamp_(acc, min=0.0)
    return acc


def refused_in_place_unknown(acc):
    acc.zero_()
    return acc


def refused_in_place_option(acc):
    return torch.nn.functional.relu(acc, inplace=True)


def refused_in_place_module(acc):
    return torch.nn.SiLU(inplace=True)(acc)


def refused_out(acc):
    y = acc + 1.0
    torch.exp(acc, out=y)
    return y


def refused_approximation(acc):
    return torch.nn.functional.gelu(acc, approximate="quick")


def refused_probability(acc):
    return epilogues.dropout(acc, 1.5, 0)


def refused_base(acc):
    return 3.0**acc


def refused_divisor(acc):
    return acc + 7 // acc.row


def refused_shifts(acc):
    return acc + (1 << acc.row)


def refused_product(acc):
    return acc @ acc


def refused_rounding(acc):
    return acc + round(acc)


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (refused_if, "if acc > 0:"),
        (refused_chain, "0 < acc < 1"),
        (refused_element, "acc[0]"),
        (refused_unpacking, "gate, up = acc"),
        (refused_capture, "acc + CAPTURED"),
        (refused_capture_on_the_left, "CAPTURED + acc"),
        (refused_torch, "torch.softmax"),
        (refused_torch_option, "beta=2"),
        (refused_method, "acc.mean()"),
        (refused_width, "interleaved(4)"),
        (refused_operand_width, "gate * up + bias"),
        (refused_reduction, "acc / acc.sum(1)"),
        (refused_unread, "def refused_unread"),
        (refused_annotation, "def refused_annotation"),
        (refused_default, "def refused_default"),
        (refused_fraction, "def refused_fraction"),
        (refused_wide_default, "def refused_wide_default"),
        (refused_star, "def refused_star"),
        (refused_underscore, "def refused_underscore"),
        (refused_position, "def refused_position"),
        (refused_all_positions, "def refused_all_positions"),
        (refused_no_position, "def refused_no_position"),
        (refused_empty_tuple, "def refused_empty_tuple"),
        (refused_empty_dict, "def refused_empty_dict"),
        (refused_names, "def refused_names"),
        (refused_digits, "def refused_digits"),
        (refused_no_name, "def refused_no_name"),
        (refused_result, "def refused_result"),
        (refused_truth, "acc > 0"),
        (refused_nothing, "def refused_nothing"),
        (refused_power, "acc**-2"),
        (refused_dtype, "torch.int8"),
        (refused_shift, "acc >> 2"),
        (refused_logic, "acc & 1"),
        (refused_condition, "where(acc, acc"),
        (refused_constant, "1e39"),
        (refused_huge, "10**400"),
        (refused_wide, "2**32"),
        (refused_comparison, "< 3000000000"),
        (refused_choice, "where(acc > 0"),
        (refused_seed, "2**40"),
        (refused_array, "np.ones"),
        (refused_exponent, "acc**acc"),
        (refused_float, "math.exp"),
        (refused_numpy, "np.exp"),
        (refused_numpy_condition, "np.where"),
        (refused_numpy_bounds, "np.clip"),
        (refused_numpy_sum, "np.sum"),
        (refused_numpy_array, "np.asarray"),
        (refused_int, r"int(acc)"),
        (refused_index, "[acc.row % 2]"),
        (refused_length, "len(acc)"),
        (refused_format, ":.2f"),
        (refused_axis, "axis=1"),
        (refused_number, "uniform(1.0"),
        (refused_float_seed, "1.5"),
        (refused_scalar_seed, "dropout"),
        (refused_parts, "interleaved(2)"),
        (refused_in_place, "torch.relu_"),
        (refused_in_place_by_name, "functional.relu_"),
        (refused_in_place_operator, "aten.relu_"),
        (refused_in_place_overload, "aten.exp_"),
        (refused_in_place_method, "acc.relu_"),
        (refused_in_place_bound, "torch.clamp_"),
        (refused_in_place_unknown, "acc.zero_"),
        (refused_in_place_option, "inplace=True"),
        (refused_in_place_module, "torch.nn.SiLU"),
        (refused_out, "torch.exp"),
        (refused_approximation, "quick"),
        (refused_probability, "dropout"),
        (refused_base, "3.0**acc"),
        (refused_divisor, "7 // acc.row"),
        (refused_shifts, "1 << acc.row"),
        (refused_product, "acc @ acc"),
        (refused_rounding, "round(acc)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_it_cant_express_is_refused_at_its_line(function, at):
    with refuses(EpilogueError) as caught:
        epilogue(function)
    place, text = str(caught.value).splitlines()[-2:]
    assert __file__ in place
    assert function.__name__ in place
    assert at in text


ONLY_OTHERS = ("counts", "offs", "scale_a", "scale_b", "use_fast_accum")
"""Names of what operations but `gemm` take, which refuse epilogues with such operands (tests/ops)."""


def test_names_that_operations_take_are_refused():
    taken = {}
    for name in cutepy.ops.__all__:
        operation = getattr(cutepy.ops, name)
        parameters = inspect.signature(operation).parameters if inspect.isfunction(operation) else {}
        if "operands" in parameters and parameters["operands"].kind == inspect.Parameter.VAR_KEYWORD:
            # An operand may be c or bias: what is passed for these is the epilogue's, if there is one.
            taken[name] = parameters.keys() - {"operands", "c", "bias"}
    assert set(RESERVED) == taken["gemm"]
    assert set(ONLY_OTHERS) == set().union(*taken.values()) - taken["gemm"]
    for name in RESERVED:
        namespace = {"Scalar": Scalar}
        exec(f"def f(acc, {name}: Scalar): return acc * {name}", namespace)
        with refuses(EpilogueError):
            epilogue(namespace["f"])


def test_a_value_of_another_function_is_refused():
    kept = []

    @epilogue
    def keeping(acc):
        kept.append(acc)
        return acc

    with refuses(EpilogueError):

        @epilogue
        def using(acc):
            return acc + kept[0]


def test_operands_are_bound_by_name():
    with refuses(EpilogueError):
        gated.bind({"bais": None})
    with refuses(EpilogueError):
        gated.bind({"bias": CAPTURED, "residual": CAPTURED})
    assert epilogues.leaky_relu.bind({}) == {"slope": 0.01}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(bias: vector)\n  v0 = acc()\n  return v0",
        "()\n  v1 = acc()\n  return v1",
        "()\n  v0 = acc()\n  v1 = add(v0, v5)\n  return v1",
        "()\n  v0 = acc()\n  v1 = softmax(v0)\n  return v1",
        "()\n  v0 = acc()\n  v1 = and(v0, v0)\n  return v1",
        "()\n  v0 = operand('x')\n  return v0",
        "()\n  v0 = acc()\n  v1 = part(v0, 0)\n  v2 = add(v0, v1)\n  return v2",
        "()\n  v0 = acc()\n  v1 = neg(v0, 1)\n  return v1",
        "()\n  v0 = row_index()\n  v1 = floordiv(v0, 0)\n  v2 = float(v1)\n  return v2",
        "()\n  v0 = row_index()\n  v1 = shl(v0, 32)\n  v2 = float(v1)\n  return v2",
    ],
)
def test_other_text_is_no_graph(text):
    with refuses(ValueError):
        Graph.parse(text)


@pytest.mark.parametrize("make", [lambda acc: acc.new_full((), 2.0), lambda acc: 2.0 * acc.new_ones([])])
def test_a_new_tensor_without_extents_is_a_constant(make):
    @epilogue
    def added(acc):
        return acc + make(acc)

    assert torch.equal(added(torch.ones(2, 3)), torch.full((2, 3), 3.0))
    with refuses(EpilogueError):
        epilogue(lambda acc: acc + acc.new_full((3,), 2.0))


def test_what_is_public():
    assert sorted(epilogues.__all__) == epilogues.__all__
    for name in epilogues.__all__:
        assert getattr(epilogues, name).__doc__, name
    assert isinstance(Integer.kind, tuple)


@pytest.mark.parametrize("name", ONLY_OTHERS)
def test_names_that_only_other_operations_take_are_operands_of_gemms(name):
    """`gemm` passes them on, and its epilogues may be named so."""
    namespace = {"Row": Row}
    exec(f"def f(acc, {name}: Row): return acc * {name}", namespace)
    made = epilogue(namespace["f"])
    assert made.bind({name: 1}) == {name: 1}
    with refuses(EpilogueError):
        made.bind({})


def test_the_compiler_is_asked_about_numbers_alone(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert [is_symbol(value) for value in (2, 0.5, "relu", None, CAPTURED)] == [False] * 5
