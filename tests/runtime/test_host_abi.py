"""The table of what host code calls, against what the DSL declares and what serves it."""

import ctypes
import re
from functools import partial

import pytest
import torch

from cutepy.dsl.entries import emit_object
from cutepy.runtime.host_abi import FUNCTIONS, MINIMUM_DRIVER, HostFunction, cuda_error_setters, is_host_function
from cutepy.runtime.host_calls import HostCalls
from cutepy.runtime.objects import undefined_symbols

TYPES = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64}


def test_a_declaration_says_types_and_names():
    function = HostFunction("int32_t _cudaX(const void* config, int64_t bytes)", driver="cuX", passes="bytes 0 config")
    assert (function.name, list(function.parameters)) == ("_cudaX", ["config", "bytes"])
    assert list(function.parameters.values()) == [ctypes.c_void_p, ctypes.c_int64]
    assert function.prototype._restype_ is ctypes.c_int32
    assert function.passed == ["bytes", "nullptr", "config"]
    assert FUNCTIONS["_cudaDeviceSynchronize"].parameters == {}
    assert FUNCTIONS["TVMFFIEnvGetStream"].prototype._restype_ is ctypes.c_void_p


def test_what_is_passed_to_the_driver_comes_in_its_order():
    seen = []
    real = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    target = real(lambda *given: seen.append(given) or 7)
    function = HostFunction("int32_t _cudaX(void* config, int64_t bytes)", driver="cuX", passes="bytes 0 config")
    assert function.adapted(ctypes.cast(target, ctypes.c_void_p).value)(2**40, -(2**40)) == 7
    assert seen == [(-(2**40), None, 2**40)]


def test_each_function_of_the_driver_is_passed_what_there_is():
    for function in FUNCTIONS.values():
        assert set(function.passed) - {"nullptr"} <= set(function.parameters)
        assert not function.passes or function.driver, function.name
    assert MINIMUM_DRIVER >= (12, 0)


def test_the_simulator_answers_every_function_but_those_that_raise():
    raising = {name for name in FUNCTIONS if "SetRaised" in name}
    assert {name for name in FUNCTIONS if not hasattr(HostCalls, name)} == raising


@pytest.mark.dsl
@pytest.mark.parametrize("options", ["", "--enable-tvm-ffi"])
def test_the_compiler_declares_them_so(options):
    """The host code's own declarations, as the DSL writes them, have the table's types."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack, make_fake_stream

    from cutepy.runtime.device_tensors import DeviceTensor
    from tests.aot.example import my_kernels

    x = from_dlpack(DeviceTensor(torch.zeros(16, dtype=torch.float16)), enable_tvm_ffi=bool(options))
    stream = make_fake_stream(use_tvm_ffi_env_stream=bool(options))
    options = f"--gpu-arch=sm_90a {options}"
    arguments = (x, x, cutlass.Float32(1), 128, stream)
    compiled = cute.compile(my_kernels.scale, *arguments, options=options)
    declared = {}
    for operation in compiled.ir_module.body.operations:
        if operation.name == "llvm.func" and not len(operation.regions[0].blocks):
            declared[operation.attributes["sym_name"].value] = str(operation.attributes["function_type"])
    common = declared.keys() & FUNCTIONS.keys()
    assert {"_cudaLaunchKernelEx", "_cudaLaunchKernel", "_cudaKernelSetAttributeForDevice"} <= common
    for name in common:
        result, parameters = re.fullmatch(r"!llvm.func<(\w+) \((.*)\)>", declared[name]).groups()
        prototype = FUNCTIONS[name].prototype
        assert [TYPES[kind] for kind in parameters.split(", ") if kind] == list(prototype._argtypes_), name
        assert TYPES.get(result) is prototype._restype_, name
    called = undefined_symbols(emit_object(compiled.ir_module))
    assert {name for name in called if is_host_function(name)} <= FUNCTIONS.keys()


def test_errors_of_cuda_are_raised_with_their_description():
    raised = []

    def raise_parts(kind, parts, count):
        texts = (ctypes.c_char_p * count).from_address(parts)
        raised.append((ctypes.string_at(kind), b"".join(texts)))

    parts = FUNCTIONS["TVMFFIErrorSetRaisedFromCStrParts"].prototype(raise_parts)
    setters = cuda_error_setters(lambda code: f"CUDA error {code}")
    for setter in setters.values():
        setter(ctypes.cast(parts, ctypes.c_void_p).value, 209)
    assert raised == [(b"RuntimeError", b"CUDA error 209")] * 2


@pytest.mark.parametrize("codes", [(0, 0), (0, 3), (4, 0)])
def test_kernels_are_loaded_once_unless_that_failed(codes):
    """Both functions of the host code that load them: the second one for the first device."""
    asked = []

    def answering(number, *given):
        asked.append((number, *given))
        return codes[number]

    kinds = (ctypes.c_void_p,), (ctypes.c_void_p, ctypes.c_int32)
    made = [ctypes.CFUNCTYPE(ctypes.c_int32, *kind)(partial(answering, n)) for n, kind in enumerate(kinds)]
    load, load_to_device = (ctypes.cast(each, ctypes.c_void_p).value for each in made)
    calls, library = HostCalls(""), 0x1230
    once = [(0, library)] if codes[0] else [(0, library), (1, library, 0)]
    for times in (1, 2, 3):
        found = calls.cuda_dialect_init_library_once(library, load, load_to_device)
        assert found == max(codes)
        assert asked == once * (times if found else 1)
