"""Functions compiled for TVM-FFI, called in the simulator: their own entry checks and packs what they are given."""

from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cutepy
from cutepy.frontends.dsl.entries import ServedEntry

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream  # noqa: E402

FFI = "--enable-tvm-ffi"


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, x: cutlass.Float32):
    t, row = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    if row < a.shape[0] and t < a.shape[1]:
        b[row, t] = a[row, t] + x


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, x: cutlass.Float32 = 1.0):
    add_kernel(a, b, x).launch(grid=(a.shape[0], 1, 1), block=(32, 1, 1))


@dataclass
class Pair:
    b: cute.Tensor
    x: cutlass.Float32


@cute.jit
def add_pair(pair: Pair, tensors: tuple, *, a: cute.Tensor):
    add_kernel(a, pair.b, pair.x).launch(grid=(a.shape[0], 1, 1), block=(32, 1, 1))
    add_kernel(tensors[0], tensors[1], pair.x).launch(grid=(a.shape[0], 1, 1), block=(32, 1, 1))


def fake(symbol, divisibility=1):
    shape = symbol(), symbol(divisibility=divisibility)
    return make_fake_compact_tensor(cutlass.Float32, shape, stride_order=(1, 0), assumed_align=16)


@pytest.mark.parametrize("symbol", [cute.sym_int, cute.sym_int64])
@pytest.mark.parametrize("make", [torch.ones, lambda *shape: np.ones(shape, "f4")], ids=["torch", "numpy"])
def test_symbolic_shapes_are_packed_as_compiled(symbol, make):
    with cutepy.simulate():
        tensor = fake(symbol)
        compiled = cute.compile(add, tensor, tensor, 1.0, options=FFI)
        a, b = make(4, 24), make(4, 24)
        compiled(a, b, 2.5)
        compiled(b=a, a=b)
    assert (np.asarray(b) == 3.5).all()
    assert (np.asarray(a) == 4.5).all()


def test_what_a_gpu_would_refuse_is_refused():
    with cutepy.simulate() as run:
        tensor = fake(cute.sym_int64, 4)
        compiled = cute.compile(add, tensor, tensor, 1.0, options=FFI)
        for a, reason in (
            (torch.ones(4, 32, dtype=torch.float64), "dtype=float32"),
            (torch.ones(4), "ndim=2"),
            (torch.ones(4, 30), "divisible by 4"),
            (torch.ones(32, 4).T, "strides"),
            (torch.ones(4, 64), "expected"),
            (3, "Tensor"),
        ):
            with pytest.raises((TypeError, ValueError), match=reason):
                compiled(a, torch.zeros(4, 32), 1.0)
            assert not run.launches


def test_tuples_dataclasses_and_keywords():
    a, *rest = (torch.full((4, 32), float(n)) for n in range(4))
    with cutepy.simulate():
        tensors = [from_dlpack(t, enable_tvm_ffi=True) for t in (a, *rest)]
        pair = Pair(tensors[1], cutlass.Float32(0))
        compiled = cute.compile(add_pair, pair, (tensors[2], tensors[3]), a=tensors[0], options=FFI)
        compiled(Pair(rest[0], 5.0), (rest[1], tensors[3]), a=a)
    assert [t.unique().tolist() for t in rest] == [[5.0], [2.0], [7.0]]


def test_kept_ptx_of_a_function_compiled_before(tmp_path):
    options = f"{FFI} --gpu-arch=sm_90a --keep-ptx --dump-dir={tmp_path}"
    compiled = cute.compile(add, fake(cute.sym_int64), fake(cute.sym_int64), 1.0, options=options)
    b = torch.zeros(4, 32)
    with cutepy.simulate():
        compiled(torch.ones(4, 32), b, x=2.0)
    assert (b == 3).all()


@cute.jit
def add_on(a: cute.Tensor, b: cute.Tensor, stream, x: cutlass.Float32):
    add_kernel(a, b, x).launch(grid=(a.shape[0], 1, 1), block=(32, 1, 1), stream=stream)


def test_the_stream_of_the_environment_is_left_out():
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    b = torch.zeros(4, 32)
    with cutepy.simulate():
        compiled = cute.compile(add_on, fake(cute.sym_int), fake(cute.sym_int), stream, 1.0, options=FFI)
        compiled(torch.ones(4, 32), b, 4.0)
    assert (b == 5).all()


def test_what_the_kernel_does_wrong_reaches_the_caller():
    with cutepy.simulate() as run:
        compiled = cute.compile(add, fake(cute.sym_int), fake(cute.sym_int), 1.0, options=FFI)
        with pytest.raises(cutepy.sim.MemoryAccessError):
            compiled(torch.zeros(4, 32), torch.zeros(2, 32), 1.0)
        b = torch.zeros(4, 32)
        compiled(torch.zeros(4, 32), b, 1.0)
    assert (b == 1).all()
    assert len(run.launches) == 2


def test_what_went_wrong_in_a_launch_comes_before_the_refusal_it_causes():
    """An entry, by stand-ins: failures of its calls are told first, then refusals, and nothing else is a result."""

    def called(failure, refusal):
        def call(x, *, y):
            seen.append((entry._backend, x, y))
            if refusal is not None:
                raise refusal
            return x + y

        def check(code):
            checked.append(code)
            if failure is not None:
                raise failure

        seen, checked, entry = [], [], object.__new__(ServedEntry)
        entry._backend = "before"
        entry._binder = SimpleNamespace(has_pointer_address_arg_specs=False)
        entry._host = SimpleNamespace(calls=SimpleNamespace(check=check, launching_on=nullcontext))
        entry._call = call
        try:
            return entry("here", (1,), {"y": 2})
        finally:
            assert (seen, checked, entry._backend) == ([("here", 1, 2)], [0], "before")

    assert called(None, None) == 3
    for failure, refusal, told in (
        (KeyError("launch"), None, KeyError),
        (None, ValueError("entry"), ValueError),
        (KeyError("launch"), ValueError("entry"), KeyError),
    ):
        with pytest.raises(told):
            called(failure, refusal)
