"""Analyses of a function: the sanitizer makes each of them once, however long the function runs and however often."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.sanitize.order.uses import once
from cutepy.sim.translate import control_flow

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 1 .b8 msg[4] = {37, 100, 10, 0};
.visible .entry KERNEL(.param .u64 out) {
.local .align 8 .b8 depot[8];
.shared .align 8 .b8 tile[128];
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %a<2>, %g, %fmt, %m, %o;
mov.u64 %a0, depot; cvta.local.u64 %g, %a0; mov.u64 %m, msg; cvta.global.u64 %fmt, %m;
mov.u32 %r2, %tid.x; mov.u32 %r4, 0; mov.u32 %r5, tile; ld.param.u64 %o, [out];
"""
CALL = "{ .param .b64 f; st.param.b64 [f], %fmt; .param .b64 v; st.param.b64 [v], %g; .param .b32 r; "
CALL += "call.uni (r), vprintf, (f, v); ld.param.b32 %r3, [r]; }\n"
STEPS = {
    "printf": "st.local.u32 [%a0], %r2;\n" + CALL + "setp.eq.u32 %p1, %r3, 77; @%p1 bra LABEL; add.u32 %r4, %r4, 1;\n",
    "local memory": "st.local.u32 [%a0], %r2; ld.local.u32 %r3, [%a0]; add.u32 %r4, %r4, %r3;\n",
    "unwritten local memory": "ld.local.u32 %r3, [%a0+4]; add.u32 %r4, %r4, %r3;\n",
    "shared memory": "st.shared.u32 [%r5], %r2; bar.sync 0; ld.shared.u32 %r3, [%r5]; add.u32 %r4, %r4, %r3;\n",
    "races that come to nothing": "st.global.u32 [%o+4], %r2; ld.global.u32 %r3, [%o+4];\n",
}


def kernel(name, step, count):
    body = "".join(STEPS[step].replace("LABEL", f"L{n}") + f"L{n}:\n" for n in range(count))
    return HEAD.replace("KERNEL", name) + body + "st.global.u32 [%o], %r4;\nret; }\n"


@pytest.fixture
def analyses(monkeypatch):
    """Return a list that grows with each analysis of control flow, whoever makes it."""
    made, liveness = [], control_flow._liveness

    def counted(blocks):
        made.append(blocks)
        return liveness(blocks)

    monkeypatch.setattr(control_flow, "_liveness", counted)
    return made


def launched(text, name, launches=1):
    for _ in range(launches):
        run, out = Run((), None, sanitize=True), np.zeros(64, np.uint32)
        run.register(out)
        parameters = (np.uint64(out.ctypes.data).tobytes(),)
        run.launch(KernelCall(LoadedModule(text), name, (1, 1, 1), (2, 1, 1), parameters=parameters))


@pytest.mark.parametrize("step", STEPS)
def test_accesses_cost_no_analysis(analyses, step):
    made = []
    for count in (3, 30):
        name = f"{step.replace(' ', '_')}_{count}"
        before = len(analyses)
        launched(kernel(name, step, count), name)
        made.append(len(analyses) - before)
    assert made[0] == made[1] > 0


@pytest.mark.parametrize("step", STEPS)
def test_launches_cost_no_analysis(analyses, step):
    name = f"again_{step.replace(' ', '_')}"
    text = kernel(name, step, 3)
    launched(text, name)
    assert analyses
    analyses.clear()
    launched(text, name, launches=3)
    assert not analyses


def test_an_analysis_is_kept_by_function():
    made = []

    @once
    def analysis(function):
        made.append(function)
        return len(made)

    first, second = ["f"], ["f"]  # equal, and not the same
    assert [analysis(first), analysis(second), analysis(first), analysis(second)] == [1, 2, 1, 2]
    others = [[n] for n in range(100)]
    assert [analysis(one) for one in others] == list(range(3, 103))
    assert analysis(others[-1]) == 102
    assert analysis(first) == 103  # given up
