"""`__device__` and `__constant__` variables: they live as long as their module is loaded.

CUDA C++ Programming Guide, "__device__": "has the lifetime of the CUDA context in which it is created". PTX ISA,
"Initializers": addresses of variables, and bytes of them, may be initial values.
"""

import ctypes
import gc
from dataclasses import replace

import numpy as np

from cutepy.runtime.host_calls import Backend, HostCalls
from cutepy.sim import MemoryAccessError, Run, SimulationError
from cutepy.sim.errors import LaunchError
from cutepy.sim.machine.loaded_module import LoadedModule
from tests.messages import refuses

from .launching import kernel_call

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_REGISTERS = ".reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; ld.param.u64 %rd0, [p];"


def entry(body, name="k"):
    return f".visible .entry {name}(.param .u64 p) {{ {_REGISTERS} {body} ret; }}\n"


def launch(text, array, kernel="k", run=None, loaded=None):
    run = run or Run((), None)
    run.register(array)
    call = kernel_call(text, [array])
    run.launch(replace(call, kernel=kernel, loaded=loaded or call.loaded))
    return run


_COUNTER = f"""{_HEAD}.global .u32 counter = 40; .const .u32 step = 2;
{entry("ld.const.u32 %r1, [step]; atom.global.add.u32 %r2, [counter], %r1; st.global.u32 [%rd0], %r2;")}
{entry("ld.global.u32 %r2, [counter]; st.global.u32 [%rd0], %r2;", "get")}"""


def test_variables_keep_their_values_between_the_launches_of_a_module():
    run, out, loaded = Run((), None), np.zeros(1, np.uint32), LoadedModule(_COUNTER)
    found = []
    for kernel in ("k", "k", "get", "k"):
        launch(_COUNTER, out, kernel, run, loaded)
        found.append(int(out[0]))
    assert found == [40, 42, 44, 44]
    launch(_COUNTER, out, "get", Run((), None), loaded)  # another run: the module is still loaded
    assert out[0] == 46


def test_variables_start_anew_where_a_module_is_loaded_anew():
    run, out = Run((), None), np.zeros(1, np.uint32)
    for loaded in (LoadedModule(_COUNTER), LoadedModule(_COUNTER), None, None):
        launch(_COUNTER, out, "k", run, loaded)
        assert out[0] == 40


def test_host_code_loads_a_module_once():
    """The calls of one compiled function are of one module, until its host code loads it anew."""

    class Recorder(Backend):
        def __init__(self):
            self.requests = []

        def launch(self, request):
            self.requests.append(request)

        def adopt(self, tensor):
            pass

    calls, backend, cell = HostCalls("the PTX"), Recorder(), ctypes.create_string_buffer(b"k\0")
    handle = ctypes.c_uint64()

    def load():
        calls._cudaLibraryLoadData(ctypes.addressof(handle))
        calls._cudaLibraryGetKernel(ctypes.addressof(handle), 0, ctypes.addressof(cell))
        return handle.value

    with calls.launching_on(backend):
        for times in (1, 2):
            kernel = load()
            for _ in range(times):
                calls._cudaLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0)
    first, second, third = (request.library for request in backend.requests)
    assert second is third is not first


def test_pointers_to_variables_are_good_as_long_as_the_module():
    """One module keeps the address of its variable where another's kernel finds it."""
    run, out = Run((), None), np.zeros(2, np.uint64)
    given = f"{_HEAD}.global .u32 mine = 7; {entry('mov.u64 %rd1, mine; st.global.u64 [%rd0], %rd1;')}"
    taken = f"{_HEAD}{entry('ld.global.u64 %rd1, [%rd0]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd0+8], %r1;')}"
    loaded = LoadedModule(given)
    launch(given, out, run=run, loaded=loaded)
    launch(taken, out, run=run)
    assert out[1] == 7
    known = len(run._memory.ranges())
    del loaded
    run.launches.clear()
    gc.collect()
    assert len(run._memory.ranges()) == known - 1
    with refuses(MemoryAccessError):
        launch(taken, out, run=run)


def test_initial_values_that_are_addresses():
    out = np.zeros(4, np.uint32)
    text = f"""{_HEAD}.global .u32 table[4] = {{10, 11, 12, 13}}; .const .u64 here = generic(table)+8;
    .global .u64 pair[2] = {{table, generic(table)+4}};
    .global .align 8 .u8 bytes[8] = {{0xFF(table), 0xFF00(table), 0xFF0000(table), 0xFF000000(table),
        0xFF00000000(table), 0xFF0000000000(table), 0xFF000000000000(table), 0xFF00000000000000(table)}};
    {
        entry('''ld.const.u64 %rd1, [here]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd0], %r1;
        ld.global.u64 %rd2, [pair]; ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd0+4], %r2;
        ld.global.u64 %rd3, pair[1]; ld.global.u32 %r3, [%rd3]; st.global.u32 [%rd0+8], %r3;
        ld.global.u64 %rd4, [bytes]; ld.global.u32 %r4, [%rd4+12]; st.global.u32 [%rd0+12], %r4;''')
    }"""
    launch(text, out)
    assert out.tolist() == [12, 10, 11, 13]


def test_what_has_no_address_is_refused_where_it_is_used():
    out = np.zeros(1, np.uint32)
    for declared in (".extern .global .u32 x;", ".global .texref x;"):
        launch(f"{_HEAD}{declared} {entry('st.global.u32 [%rd0], 5;')}", out)
        assert out[0] == 5
        with refuses(SimulationError):
            launch(f"{_HEAD}{declared} {entry('mov.u64 %rd1, x;')}", out)
    with refuses(LaunchError):
        launch(f"{_HEAD}.global .texref x; .global .u64 p = x; {entry('')}", out)
