"""PTX with delays: the right instructions are delayed, and nothing else is changed."""

import numpy as np
import pytest

from cutepy.binaries.ptxas import assemble, find_ptxas
from cutepy.frontends import load_ptx
from cutepy.sim.replay.reproducers.instrument import VARIABLE, Delay, with_delays
from cutepy.sim.replay.reproducers.scripts import loadable
from cutepy.sim.translate import Kernel
from tests.messages import refuses
from tests.sim.replay.kernels import HEADER

MANY = (
    HEADER
    + """
.file 1 "a.py"
.shared .align 8 .b8 tile[512];  // ; mov.u32 %r0, 1;
.visible .entry other(.param .u64 x) { ret; }
.visible .entry k(
    .param .u64 x
)
.maxntid 96, 1, 1
{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; /* bar.sync 0;
    bar.sync 1; */
    .loc 1 3 0
    ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x; mov.u32 %r1, tile; shl.b32 %r2, %r0, 2;
    add.u32 %r3, %r1, %r2; { .reg .b32 %inner; mov.u32 %inner, %r0; st.shared.u32 [%r3], %inner; }
    bar.sync 0; bar.sync 0;
AGAIN: ld.shared.u32 %r4,
        [%r3];
    setp.lt.u32 %p0, %r0, 64; @%p0 add.u32 %r4, %r4, 7; @!%p0 st.shared.u32 [%r3], %r4;
    cvt.u64.u32 %rd1, %r2; add.u64 %rd1, %rd1, %rd0; mov.b64 %rd2, {%r4,
        %r4}; st.global.u32 [%rd1], %r4;
    @%p0 bra END;
    bar.sync 1, 32;
END: ret;
}
"""
)


def texts(function):
    return [" ".join(i.text.split()) for i in function.instructions]


def test_each_instruction_can_be_delayed_and_nothing_else_is_changed():
    function = Kernel(MANY, "k").function
    for i in function.instructions:
        delayed = Kernel(with_delays(MANY, function, [Delay(i.index, 2, (0, 0, 0))]), "k").function
        own = [n for n, text in enumerate(texts(delayed)) if "%cutepy" in text]
        assert [text for n, text in enumerate(texts(delayed)) if n not in own] == texts(function)
        assert own == list(range(i.index, i.index + len(own)))
        sleep = delayed.instructions[own[-1]]
        assert sleep.parts[0] == "nanosleep"
        assert delayed.instructions[own[-1] + 1].text == i.text


def test_delays_change_no_value():
    function = Kernel(MANY, "k").function
    delays = [Delay(i.index, i.index % 4, None) for i in function.instructions]
    for text in (MANY, with_delays(MANY, function, delays)):
        x = np.zeros(1024, np.uint32)
        module = load_ptx(text)
        if text is not MANY:
            module.variable(VARIABLE, "uint32")[:] = 1000
        module.launch("k", 1, 96, (x,))
        assert x[:96].tolist() == [n + 7 if n < 64 else n for n in range(96)]


def test_a_delay_is_of_one_warp_of_one_cta_and_keeps_the_guard():
    text = (
        HEADER
        + ".visible .entry k(.param .u64 x) { .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
        + "ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mad.lo.u32 %r0, %r1, 32, %r0;\n"
        + "mov.u32 %r2, %ctaid.x; mad.lo.u32 %r0, %r2, 128, %r0; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;\n"
        + "and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0;\n@!%p0 st.global.u32 [%rd0], %r0;\nret; }"
    )
    function = Kernel(text, "k").function
    store = next(i.index for i in function.instructions if i.parts[0] == "st")
    # Who would sleep stores a 7 instead.
    delayed = with_delays(text, function, [Delay(store, 2, (1, 0, 0))])
    shown = delayed.replace("nanosleep.u32 %cutepy_r5", "st.global.u32 [%rd0], 7").replace("@!%p0 st", "@%p1 st")
    shown = shown.replace("setp.eq.u32 %p0, %r3, 0;", "setp.eq.u32 %p0, %r3, 0; setp.ne.u32 %p1, %r0, %r0;")
    x = np.zeros(3 * 128, np.uint32)
    load_ptx(shown).launch("k", 3, (32, 4), (x,))
    assert np.flatnonzero(x == 7).tolist() == list(range(128 + 64 + 1, 128 + 96, 2))
    assert not (x[x != 7]).any()


@pytest.mark.dsl
def test_our_gemm_parses_and_is_right_with_delays():
    torch = pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    from cutepy.frontends import simulate
    from cutepy.frontends.backend import Simulator
    from cutepy.frontends.dsl.execution import executing_on
    from cutepy.sim import Run
    from tests.sim.kernels.launching import EditedPtx
    from tests.sim.kernels.test_gemm import compiled, multiply

    def edit(ptx):
        kernel = next(line.split()[2].split("(")[0] for line in ptx.splitlines() if line.startswith(".visible .entry"))
        function = Kernel(ptx, kernel).function
        chosen = [
            i.index for i in function.instructions if i.parts[0] in ("wgmma", "mbarrier", "cp", "stmatrix", "bar")
        ]
        return loadable(with_delays(ptx, function, [Delay(index, 1) for index in chosen]))

    with simulate(), executing_on(EditedPtx(Simulator(Run((), None)), edit)):
        function, signature = compiled()
        got, expected = multiply(function, signature, 128, 128, 128)
    assert torch.equal(got, expected)


def test_an_instruction_that_is_not_in_the_text_is_refused():
    function = Kernel(MANY, "k").function
    with refuses(ValueError):
        with_delays(MANY.replace("bar.sync 1, 32;", ""), function, [Delay(function.instructions[-2].index)])


@pytest.mark.integration
def test_ptxas_takes_it():
    if not find_ptxas():
        pytest.skip("there is no ptxas")
    function = Kernel(MANY, "k").function
    assemble(loadable(with_delays(MANY, function, [Delay(i.index, 1) for i in function.instructions])))
