"""Mistakes that ptxas repairs are advisories; without a ptxas, only moves between MMAs of 16-bit sums are."""

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest

from cutepy.binaries.cubin import KernelResources
from cutepy.binaries.ptxas import Advice, Assembly
from cutepy.binaries.spills import Spill
from cutepy.frontends import assembler
from cutepy.sim import Run, SimulationError
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.ptx.model import Immediate, Instruction, Register, Vector
from cutepy.sim.sanitize import repairs
from cutepy.sim.sanitize.assembler import assembled_by
from cutepy.sim.sanitize.registers import RegisterHazard, register_hazards
from cutepy.sim.translate import Kernel
from tests.messages import pins

PACKED = Instruction(
    3, "mov.b32", (Vector((Register("%rs1", "b16", 1), Register("%rs2", "b16", 2))), Register("%r1", "b32", 0))
)
ADD = Instruction(4, "add.f32", (Register("%f1", "f32", 3), Register("%f1", "f32", 3), Immediate(1)), line=40)
MMA = Instruction(5, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", (), line=50)
WAITS = ("accumulator-in-flight", "fragment-in-flight")


def judge(monkeypatch, hazard, *advice):
    assembly = Assembly("13.0", (), tuple(advice)) if advice != (None,) else None
    monkeypatch.setattr(repairs, "assembly_of", lambda ptx: assembly)
    block = SimpleNamespace(instructions=(replace(MMA, index=9, line=45), *(i for i in (PACKED, ADD, MMA))))
    (found,) = repairs.judged(Kernel("", "kernel"), [hazard], SimpleNamespace(blocks=[block]))
    return found.kind


def says(code, line=None, function="kernel"):
    return Advice(code, f"something around line {line}", function, line)


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_that_is_injected_makes_good(monkeypatch, kind):
    hazard = RegisterHazard(kind, MMA, ADD)
    assert judge(monkeypatch, hazard, says("C7517", 39)) == "injected-wgmma-wait"
    assert judge(monkeypatch, hazard, says("C7514")) == "injected-wgmma-wait"
    assert judge(monkeypatch, hazard, says("C7517", 39, "another")) == kind
    assert judge(monkeypatch, hazard, says("C7508")) == kind
    assert judge(monkeypatch, hazard, None) == kind


def test_a_fence_is_made_good_where_it_is_missing(monkeypatch):
    hazard = RegisterHazard("missing-wgmma-fence", ADD, MMA)
    assert judge(monkeypatch, hazard, says("C7519", 50)) == "injected-wgmma-fence"
    assert judge(monkeypatch, hazard, says("C7519", 45)) == "injected-wgmma-fence"  # before another MMA of the block
    assert judge(monkeypatch, hazard, says("C7519", 51)) == "missing-wgmma-fence"
    assert judge(monkeypatch, hazard, says("C7519", 44)) == "missing-wgmma-fence"
    assert judge(monkeypatch, hazard, says("C7510")) == "injected-wgmma-fence"
    assert judge(monkeypatch, hazard, None) == "missing-wgmma-fence"


def test_moves_of_halves_are_made_good_by_every_ptxas(monkeypatch):
    assert judge(monkeypatch, RegisterHazard(WAITS[0], MMA, PACKED), None) == "injected-wgmma-wait"
    assert judge(monkeypatch, RegisterHazard("missing-wgmma-fence", PACKED, MMA), None) == "injected-wgmma-fence"


def test_without_hazards_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(repairs, "assembly_of", lambda ptx: pytest.fail("ptxas was asked"))
    assert repairs.judged(Kernel("", "kernel"), [], SimpleNamespace(blocks=[])) == []


def test_kernels_with_mmas_are_asked_about():
    """Also where no register is used too early."""
    ready = SUMS.replace("mov.b32 {%rs1, %rs2}, %r1;\nmov.b32 %r3, {%rs1, %rs2};\n", "").replace("%r3", "%r1")
    said = Assembly("13.0", (KernelResources("kernel", 255, 8, 0, 16, 24, None),), (says("C7512"), says("C7508")))
    run = Run((), None, sanitize=True)
    with assembled_by(lambda ptx: said), suppress(SimulationError):
        run.launch(KernelCall(LoadedModule(ready), "kernel", (1, 1, 1), (128, 1, 1), parameters=(bytes(8),)))
    assert [advisory.kind for advisory in run.advisories] == [
        "serialised-wgmma",
        "ignored-setmaxnreg",
        "spilled-registers",
    ]
    assert not {hazard.kind for hazard in run.hazards} & {"missing-wgmma-fence", *WAITS}


@pytest.mark.parametrize(
    ("body", "times"),
    [
        ("", 0),
        ("bar.sync 0;", 0),
        ("setmaxnreg.dec.sync.aligned.u32 24;", 1),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r1,%r1},{%r1},{%f0,%f1,%f2,%f3};", 1),
    ],
)
def test_ptxas_is_asked_about_mmas_and_setmaxnreg_only(monkeypatch, body, times):
    asked = []
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    monkeypatch.setattr(assembler, "_answers", {})
    monkeypatch.setattr(assembler, "assemble", lambda ptx: asked.append(ptx) or Assembly("13.0", (), ()))
    text = GIVES.replace("setmaxnreg.dec.sync.aligned.u32 24;", body)
    sums = ".reg .f32 %f<4>;\n" + "".join(f"mov.f32 %f{n}, 0f00000000;\n" for n in range(4))
    text = text.replace(".reg .b32 %r<5>;\n", f".reg .b32 %r<5>;\n{sums}")
    for _ in range(3):
        run = Run((), None, sanitize=True)
        with assembled_by(assembler.ask_ptxas):
            for _ in range(2):
                run.launch(KernelCall(LoadedModule(text), "kernel", (1, 1, 1), (128, 1, 1)))
    assert len(asked) == times
    assert not run.advisories


GIVES = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel()
{
.reg .b32 %r<5>;
mov.u32 %r1, 1;
setmaxnreg.dec.sync.aligned.u32 24;
ret;
}
"""


def test_kernels_with_setmaxnreg_are_asked_about():
    said = Assembly("13.0", (KernelResources("kernel", 32, 8, 0, 16, 24, None),), (says("C7508"),))
    run = Run((), None, sanitize=True)
    with assembled_by(lambda ptx: said):
        run.launch(KernelCall(LoadedModule(GIVES), "kernel", (1, 1, 1), (128, 1, 1)))
    found = run.hazards.advisories
    assert [(one.kind, one.after.instruction.line) for one in found] == [
        ("ignored-setmaxnreg", 8),
        ("spilled-registers", 7),
    ]
    assert "min_blocks_per_mp=1" in found[0].advice[1]


@pytest.mark.parametrize(
    ("spills", "line", "said"),
    [
        (None, 8, "at lines that nvdisasm would name (pip install 'cutepy[inspect]')"),
        (
            [Spill(9, 4, 0, False, False), Spill(13, 0, 8, False, False)],
            13,
            "in no loop (8 at line 13 of the PTX, 4 ",
        ),
        ([Spill(9, 4, 0, True, False), Spill(13, 0, 8, False, False)], 9, "4 in a loop (4 at line 9 of the PTX)"),
        (
            [Spill(9, 4, 0, True, True), Spill(13, 0, 8, True, False)],
            9,
            "4 in a loop with MMAs (4 at line 9 of the ",
        ),
        ([Spill(n, 4, 0, True, True) for n in (7, 9, 10, 13)], 7, "16 in a loop with MMAs (4 at line 7 of the PTX, "),
    ],
)
def test_spills_are_told_where_they_cost_most(spills, line, said):
    asked = mock.Mock(advice=(), resources=[KernelResources("kernel", 255, 8, 0, 16, 24, None)])
    asked.spills.return_value = spills
    with assembled_by(lambda ptx: asked):
        ((kind, _, _, side, cost),) = repairs.remarks(Kernel(SUMS, "kernel"))
    assert (kind, side.instruction.line) == ("spilled-registers", line)
    pins(cost.wrong)
    assert ("..." in cost.wrong) == (spills is not None and len(spills) > 3)


SUMS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 d)
{
.reg .b16 %rs<5>; .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<3>;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r1, %r2}, %rd1, %rd2, 1, 1, 1, 0, 0;
mov.b32 {%rs1, %rs2}, %r1;
mov.b32 %r3, {%rs1, %rs2};
wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r3, %r2}, %rd1, %rd2, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
st.global.u32 [%rd3], %r3;
ret;
}
"""


def test_sums_of_16_bits_between_mmas_are_no_hazards(monkeypatch):
    """As the DSL writes them for NVIDIA's dense_gemm with --acc_dtype Float16."""
    monkeypatch.setattr(repairs, "assembly_of", lambda ptx: None)
    flow = Kernel(SUMS, "kernel").flow
    found = repairs.judged(Kernel(SUMS, "kernel"), register_hazards(flow), flow)
    assert {hazard.kind for hazard in found} == {"injected-wgmma-wait", "injected-wgmma-fence"}


@pytest.mark.parametrize(
    ("zero", "kinds"), [("mov.b32 %r5, 0;", []), ("cvt.u32.u16 %r5, %rs1;", ["missing-wgmma-fence"])]
)
def test_a_constant_that_begins_sums_may_be_used_for_something_else(zero, kinds):
    """As the DSL writes a sum of zeros, and the upper half of a descriptor of zeros, after wgmma.fence."""
    first, second = "mov.b32 %r1, %r5;\nmov.b32 %r2, %r5;\n", "mov.b64 %rd1, {%r6, %r5};\n"
    lines = SUMS.replace("mov.b32 {%rs1, %rs2}, %r1;\nmov.b32 %r3, {%rs1, %rs2};\n", second).replace("%r3", "%r1")
    fence = "wgmma.fence.sync.aligned;\n"
    flow = Kernel(lines.replace(fence, f"{fence}{zero}\n{second}{first}"), "kernel").flow
    assert [hazard.kind for hazard in register_hazards(flow)] == kinds


MMA_OF = "wgmma.mma_async.sync.aligned.m64n{}k16.f16.f16.f16 {{{}}}, {}, %rd2, 1, 1, 1, {};\n"
SHARED, FRAGMENT = ("%rd1", "0, 0"), ("{%r5, %r6, %r7, %r8}", "0")
TWO, FOUR = (8, "%r1, %r2"), (16, "%r1, %r2, %r3, %r4")
SUMS_AS_A = MMA_OF.format(8, "%r5, %r6", "{%r1, %r2, %r3, %r4}", "0")
INTO_A = MMA_OF.format(8, "%r5, %r6", *SHARED)
FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"


@pytest.mark.parametrize(
    ("first", "second", "flying"),
    [
        # Other sums, in the same registers.
        (MMA_OF.format(*TWO, *SHARED), MMA_OF.format(*FOUR, *SHARED), "accumulator-in-flight"),
        (MMA_OF.format(*FOUR, *SHARED), MMA_OF.format(*TWO, *SHARED), "accumulator-in-flight"),
        # Sums that are A.
        (MMA_OF.format(*FOUR, *SHARED), SUMS_AS_A, "accumulator-in-flight"),
        # A, and then sums.
        (MMA_OF.format(*TWO, *FRAGMENT), INTO_A, "fragment-in-flight"),
        # The same sums, and the same A.
        (MMA_OF.format(*TWO, *SHARED), MMA_OF.format(*TWO, *SHARED), None),
        (MMA_OF.format(*FOUR, *SHARED), MMA_OF.format(*FOUR, *FRAGMENT), None),
        (MMA_OF.format(*TWO, *FRAGMENT), MMA_OF.format(*TWO, *FRAGMENT), None),
    ],
)
def test_mmas_that_use_registers_of_others_differently_wait_and_have_a_fence(first, second, flying):
    """PTX ISA, "wgmma.fence": none is needed between sums of MMAs of one shape alone."""
    start, end = FENCE, COMMIT + WAIT

    def kinds(between):
        text = SUMS.partition("wgmma")[0] + start + first + between + second + end + "ret;\n}\n"
        return [hazard.kind for hazard in register_hazards(Kernel(text, "kernel").flow)]

    missing = [] if flying is None else ["missing-wgmma-fence"]
    in_flight = [] if flying is None else [flying]
    assert kinds("") == in_flight
    assert kinds(FENCE) == in_flight
    assert kinds(COMMIT + WAIT) == missing
    assert kinds(COMMIT + WAIT + FENCE) == []


def test_a_certificate_assumes_what_the_assembler_makes_good():
    waited = SUMS.replace("mov.b32 {%rs1, %rs2}, %r1;\nmov.b32 %r3, {%rs1, %rs2};\n", "").replace("%r3", "%r1")
    for text, assumed in ((SUMS, 1), (waited.replace("1, 1, 1, 0, 0", "0, 1, 1, 0, 0"), 0)):
        run = Run((), None, sanitize=True)
        said = Assembly("13.0", (), (says("C7514"),))
        call = KernelCall(LoadedModule(text), "kernel", (1, 1, 1), (128, 1, 1), parameters=(bytes(8),))
        with assembled_by(lambda ptx, said=said: said), suppress(SimulationError):
            run.launch(call)
        (certificate,) = run.certificates
        assert sum("ptxas" in one for one in certificate.assumptions) == assumed
