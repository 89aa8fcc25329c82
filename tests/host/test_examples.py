"""Examples that no annotation explains: what is compiled in by what it is, tuples, and what is refused."""

import dataclasses
from types import SimpleNamespace
from typing import NamedTuple

import cutlass
import numpy as np
import pytest
import torch
from cutlass.base_dsl.compiler import Compiler

import cutepy
from cutepy.host import function
from cutepy.host.arguments import check_arguments
from cutepy.host.specs import TensorSpec
from tests.host import constants, kernels
from tests.messages import refuses

pytestmark = pytest.mark.dsl

VECTOR = TensorSpec("float32", (32,))


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))


def filled(function, *arguments):
    a = torch.zeros(32)
    with cutepy.simulate():
        function(a, *arguments)
    assert (a == a[0]).all()
    return a[0].item()


@pytest.mark.parametrize(
    ("function", "examples", "result"),
    [
        (constants.width, (cutlass.Float16, 1.0), 16),
        (constants.width, (cutlass.Float32, 1.0), 32),
        (constants.untyped, (int, 1.0), 3),
        (constants.Methods.of_class, (1.0,), 6),
        (constants.Heir.of_class, (1.0,), 7),
        (constants.Methods.static, (1.0,), 6),
    ],
)
def test_classes_are_compiled_in(function, examples, result):
    first, second = (cutepy.compile(function, VECTOR, *examples) for _ in range(2))
    assert (first.cost().cached, second.cost().cached) == (False, True)
    for made in (first, second):
        assert [parameter.name for parameter in made.parameters] == ["a", "scale"]
        assert filled(made, 2.0) == pytest.approx(2 * result)


def test_what_is_compiled_in_is_in_the_key():
    examples = (int, float)
    made = [cutepy.compile(constants.untyped, VECTOR, example, 1.0) for example in examples]
    made += [cutepy.compile(owner.of_class, VECTOR, 1.0) for owner in (constants.Methods, constants.Heir)]
    assert not any(function.cost().cached for function in made)
    assert [filled(function, 1.0) for function in made] == [3, 3.5, 6, 7]


def test_a_class_where_the_dsl_takes_none_is_refused():
    with refuses(TypeError):
        cutepy.compile(constants.typed, VECTOR, 1.0)


@pytest.mark.parametrize("function", [constants.Methods(), constants.Methods().bound])
def test_self_by_another_name_is_refused(function):
    with refuses(TypeError):
        cutepy.compile(function, VECTOR, 1.0)


def test_a_member_that_is_a_number_is_a_number():
    function = cutepy.compile(kernels.fill, VECTOR, constants.Number.FIVE)
    assert function.parameters[1].number == "int"
    assert filled(function, 9) == 9


class Broken:
    def __init__(self, value):
        value // 0


def test_the_dsl_is_left_as_it_was():
    tracer = cutlass.cutlass_dsl.CuTeDSL._get_dsl()
    before = tracer._tvm_ffi_args_spec_converter, Compiler.compile
    with pytest.raises(ZeroDivisionError):
        cutepy.compile(constants.untyped, VECTOR, Broken, 1.0)
    assert (tracer._tvm_ffi_args_spec_converter, Compiler.compile) == before


def test_numbers_in_tuples_are_given_at_each_call():
    function = cutepy.compile(constants.total, VECTOR, (1, [np.float32(2.5)]))
    (_, numbers) = function.parameters
    assert str(numbers) == "numbers: ([0]: scalar, [1]: ([0]: scalar))"
    assert [item.number for item in (numbers.items[0], *numbers.items[1].items)] == ["int", "float"]
    for same in ((7, (0.5,)), [7, [0.5]]):
        assert cutepy.compile(constants.total, VECTOR, same).cost().cached
        check_arguments("total", function.parameters, (torch.zeros(32), same))
    assert not cutepy.compile(constants.total, VECTOR, (1.0, (2.5,))).cost().cached
    with refuses(TypeError):
        check_arguments("total", function.parameters, (torch.zeros(32), (1, ("x",))))
    with refuses(TypeError):
        check_arguments("total", function.parameters, (torch.zeros(32), (1,)))
    assert filled(function, (1, (2.5,))) == 3.5
    assert filled(function, [np.int8(3), [np.float32(0.5)]]) == 3.5


@pytest.mark.gpu
def test_a_tuple_of_numbers_reaches_the_gpu():
    function = cutepy.compile(constants.total, VECTOR, (1, (2.5,)))
    for numbers in ((1, (2.5,)), [-3, [0.25]]):
        a = torch.zeros(32, device="cuda")
        function(a, numbers)
        assert (a == numbers[0] + numbers[1][0]).all()


def test_parameters_called_like_settings_get_examples_by_position():
    assert filled(cutepy.compile(constants.settings, VECTOR, 3.0, 4.0)) == 12
    assert filled(cutepy.compile(constants.settings, VECTOR, 3.0)) == 6
    assert filled(cutepy.compile(constants.settings, VECTOR, 3.0, 5.0, cache=False, options="--opt-level 2")) == 15


@pytest.mark.parametrize(
    ("function", "examples", "settings"),
    [
        (constants.settings, (), {}),
        (constants.settings, (), {"options": "x"}),
        (constants.settings, (), {"options": VECTOR}),
        (constants.settings, (1.0,), {"cache": False}),
        (constants.settings, (1.0,), {"cache": torch.zeros(2)}),
        (constants.settings_by_name, (), {}),
        (constants.settings_by_name, (), {"cache": 2.0}),
        (kernels.biased, (), {"cache": 1}),
        (kernels.biased, (), {"options": None}),
    ],
)
def test_settings_are_told_from_examples(function, examples, settings):
    with refuses(TypeError):
        cutepy.compile(function, VECTOR, *examples, **settings)


@pytest.fixture(scope="module")
def optional():
    return cutepy.compile(constants.optional, VECTOR, None, 1.0, cache=False)


def test_arguments_left_out_cost_one_failed_launch(optional, monkeypatch):
    """Compiled code refuses a call without its last arguments; the calls after that one are completed beforehand."""
    tried = []

    def launch(*arguments):
        tried.append(len(arguments))
        if len(arguments) != 5:
            raise TypeError("of the number of arguments")

    monkeypatch.setattr(optional, "_launch", launch)
    monkeypatch.setattr(optional, "_cuda", SimpleNamespace(make_ready=lambda _: False))
    monkeypatch.setattr(function, "_require_gpu", lambda *_: None)
    monkeypatch.setattr(function, "_device_index", lambda _: 0)
    for _ in range(3):
        optional(torch.zeros(32), None, 3.0)
    optional(torch.zeros(32), None, 3.0, None, None)
    assert tried == [3, 5, 5, 5, 5]


def test_last_arguments_that_stay_none_may_be_left_out(optional):
    assert [parameter.kind for parameter in optional.parameters] == ["tensor", "none", "scalar", "none", "none"]
    for rest in ((), (None,), (None, None)):
        assert filled(optional, None, 3.0, *rest) == 3
    a = torch.zeros(32)
    with cutepy.simulate():
        optional(a, scale=4.0)
        optional(a, z=None, scale=5.0)
    assert a[0] == 5
    with refuses(TypeError):
        filled(optional, None)
    with refuses(TypeError):
        filled(optional, None, 1.0, None, None, None)
    with refuses(TypeError):
        filled(optional, None, 1.0, a)


class OnGpu:
    """A tensor in host memory that says it is on a GPU."""

    is_cuda = True
    device = torch.device("cuda", 0)

    def __init__(self):
        self.tensor = torch.zeros(32)

    def __getattr__(self, name):
        return getattr(self.tensor, name)


def test_the_compiled_entry_gets_what_was_left_out(optional, monkeypatch):
    """Nothing is added for a call that is complete; one that fails for another reason fails with it."""
    calls = []

    def entry(*arguments):
        calls.append(arguments)
        if len(arguments) != 5:
            raise TypeError("wrong number of arguments")
        if arguments[2] < 0:
            raise RuntimeError("of CUDA")

    monkeypatch.setattr(optional, "_launch", entry)
    monkeypatch.setattr(optional, "_cuda", SimpleNamespace(make_ready=lambda device: False))
    a = OnGpu()
    full = (a, None, 3.0, None, None)
    optional(*full)
    assert calls == [full]
    optional(*full[:3])
    assert calls[1:] == [full[:3], full]
    with refuses(TypeError):
        optional(*full[:2])
    for count in (5, 3):
        with refuses(RuntimeError):
            optional(*(a, None, -1.0, None, None)[:count])


@pytest.mark.gpu
def test_arguments_may_be_left_out_on_the_gpu(optional):
    a = torch.zeros(32, device="cuda")
    for n, rest in enumerate([(), (None,), (None, None), ()]):
        optional(a, None, n + 1.0, *rest)
        assert (a == n + 1).all()


class Pair(NamedTuple):
    x: int = 1


@dataclasses.dataclass(frozen=True)
class Settings:
    x: int = 1


@pytest.mark.parametrize(
    "example",
    [
        "text",
        Pair("text"),
        Settings("text"),
        {"x": 1},
        max,
        constants.Mode.FOUR,
        torch.float16,
        (1, "text"),
        (VECTOR, (1, cutlass.Float16)),
    ],
    ids=str,
)
def test_what_needs_an_annotation_is_refused(example):
    with refuses(TypeError):
        cutepy.compile(constants.untyped, VECTOR, example, 1.0, cache=False)
