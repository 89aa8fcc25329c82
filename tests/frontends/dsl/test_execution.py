"""simulate() within simulate(), and from several threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

import cutepy
from cutepy.frontends.backend import active_run
from cutepy.frontends.dsl.execution import _loaded
from cutepy.frontends.dsl.host_programs import NoPtxError
from cutepy.frontends.torch_device import serve_cuda
from cutepy.runtime.execution import EXECUTION
from tests.messages import refuses

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")
from cutlass.cute.runtime import from_dlpack  # noqa: E402


@cute.kernel
def add_kernel(a: cute.Tensor, x: cutlass.Float32):
    i = cute.arch.thread_idx()[0]
    if i < cute.size(a):
        a[i] = a[i] + x


@cute.jit
def add(a: cute.Tensor, x: cutlass.Float32):
    add_kernel(a, x).launch(grid=(1, 1, 1), block=(64, 1, 1))


@pytest.mark.parametrize("outer", [cutepy.simulate, serve_cuda])
def test_the_innermost_run_takes_the_launches(outer):
    a = torch.zeros(64)
    with outer() as around:
        add(a, 1.0)
        with cutepy.simulate() as run:
            add(a, 2.0)
            compiled = cute.compile(add, from_dlpack(a), 1.0)
            compiled(a, 3.0)
        compiled(a, 4.0)
        assert (len(around.launches), len(run.launches)) == (2, 2)
    assert a.unique().tolist() == [10.0]


def test_the_owner_names_the_innermost_backend():
    assert EXECUTION.backend is None
    with cutepy.simulate() as outer:
        assert active_run() is outer
        with cutepy.simulate() as inner:
            assert active_run() is inner
        with pytest.raises(KeyError), cutepy.simulate():
            raise KeyError
        assert active_run() is outer
    assert EXECUTION.backend is None


def test_a_failure_inside_leaves_the_outer_run_as_it_was():
    a = torch.zeros(64)
    with cutepy.simulate() as around:
        with pytest.raises(KeyError), cutepy.simulate():
            raise KeyError
        add(a, 1.0)
    assert len(around.launches) == 1


def test_a_run_of_another_thread_is_refused():
    def enter():
        with cutepy.simulate():
            pass

    with cutepy.simulate() as run, ThreadPoolExecutor(1) as pool:
        with refuses(RuntimeError):
            pool.submit(enter).result()
        a = torch.zeros(64)
        add(a, 1.0)
        assert len(run.launches) == 1
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    enter()


@pytest.mark.parametrize("options", ["", "--enable-tvm-ffi"])
def test_threads_take_turns_within_one_run(options):
    tensors = [torch.zeros(64) for _ in range(4)]

    def call(a):
        for _ in range(20):
            compiled(a, 1.0)

    with cutepy.simulate() as run, ThreadPoolExecutor(4) as pool:
        compiled = cute.compile(add, from_dlpack(tensors[0], enable_tvm_ffi=True), 1.0, options=options)
        list(pool.map(call, tensors))
        assert len(run.launches) == 80
    assert [a.unique().tolist() for a in tensors] == [[20.0]] * 4


def test_a_function_of_a_loaded_object_runs_on_no_backend():
    def loaded(name="f", **module):
        return _loaded(lambda module, name: lambda x: x + 1, SimpleNamespace(**module), name)

    ffi, plain, private = loaded(enable_tvm_ffi=True), loaded(enable_tvm_ffi=False), loaded("__f", enable_tvm_ffi=True)
    assert [function(1) for function in (ffi, plain, private)] == [2, 2, 2]
    with cutepy.simulate():
        with refuses(NoPtxError):
            ffi(1)
        assert [function(1) for function in (plain, private)] == [2, 2]
