"""Tensor memory under the sanitizer: a right kernel is clean, and each mistake in it is told by its kind."""

import numpy as np
import pytest

from cutepy import load_ptx, simulate
from cutepy.layouts.sm100 import InstrDescriptor, SmemDescriptor
from cutepy.sim import HazardError, SimulationError
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.sanitize.memory.tensor_memory import ended_by_use
from tests.messages import refuses

KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 out, .param .u32 word, .param .u64 a, .param .u64 b)
.reqntid 128 {
.reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<8>; .shared .align 8 .b64 bar[2]; .shared .align 4 .b32 base;
.reg .b32 %v<8>; ld.param.u64 %d0, [out]; ld.param.u32 %r9, [word]; ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.ne.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r0, 0; mov.u32 %r5, bar;
mov.u32 %r2, s; shr.u32 %r3, %r2, 4; cvt.u64.u32 %d3, %r3; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
shl.b32 %r3, %r0, 4; add.u32 %r3, %r2, %r3; mov.u32 %r4, 0;
A: st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4}; add.u32 %r3, %r3, 2048; add.u32 %r4, %r4, 1;
setp.lt.u32 %p2, %r4, 4; @%p2 bra A;
fence.proxy.async.shared::cta;
@%p0 bra B; mov.u32 %r6, base; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6], 64;
B: @!%p1 bra C; mbarrier.init.shared.b64 [%r5], 1; mbarrier.init.shared.b64 [%r5+8], 1;
fence.mbarrier_init.release.cluster;
C: bar.sync 0; ld.shared.u32 %r7, [base]; shl.b32 %r8, %r1, 21; add.u32 %r8, %r7, %r8;
@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;
// first product
tcgen05.mma.cta_group::1.kind::f16 [%r7], %d1, %d2, %r9, %p3;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r5];
D: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra D;
// first epilogue
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%r8]; tcgen05.wait::ld.sync.aligned;
bar.sync 0;
@!%p1 bra E;
// second product
tcgen05.mma.cta_group::1.kind::f16 [%r7], %d1, %d2, %r9, %p3;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r5+8];
E: mbarrier.try_wait.parity.shared.b64 %p4, [%r5+8], 0; @!%p4 bra E;
// second epilogue
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%r8]; tcgen05.wait::ld.sync.aligned;
mul.wide.u32 %d4, %r0, 4; add.u64 %d4, %d0, %d4; st.global.u32 [%d4], %v0;
bar.sync 0;
// the end
@%p0 bra F; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r7, 64;
F: ret; }
"""
_LOAD = "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%r8];"
_STORED = (
    f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%r8], {{{15 * '%r4, '}%r4}}; tcgen05.wait::st.sync.aligned;\n"
    "bar.sync 0;\n@!%p1 bra D; setp.eq.u32 %p3, %r0, 0;"
)
MISTAKES = {
    "no wait for the first product": (
        "D: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra D;\n// first epilogue",
        "D:",
        "unordered-read",
    ),
    "no barrier between a load and the product that overwrites": (
        "tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n@!%p1 bra E;",
        "tcgen05.wait::ld.sync.aligned;\n@!%p1 bra E;",
        "unordered-write",
    ),
    "no commit of the second product": (
        "mbarrier::arrive::one.b64 [%r5+8];\nE: mbarrier.try_wait.parity.shared.b64 %p4, [%r5+8], 0; @!%p4 bra E;",
        "mbarrier::arrive::one.b64 [%r5+8];\nE:",
        "unordered-read",
    ),
    "freed while others load": (
        "bar.sync 0;\n// the end",
        "// the end",
        "unordered-write",
    ),
    "released before it is loaded (cudnn-frontend 652)": (
        f"{_LOAD} tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n",
        f"bar.sync 0;\n{_LOAD} tcgen05.wait::ld.sync.aligned;\n",
        "unordered-write",
    ),
    "released with a load in flight (flashinfer 5334)": (
        f"{_LOAD} tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n@!%p1 bra E;",
        f"{_LOAD}\nbar.sync 0;\n@!%p1 bra E;",
        "unordered-write",
    ),
    "a product accumulates on a store in flight (FlashAttention 2033)": (
        "@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;",
        _STORED.replace("tcgen05.wait::st.sync.aligned;", ""),
        "unordered-write",
    ),
    "no proxy fence": ("fence.proxy.async.shared::cta;\n", "", "missing-proxy-fence"),
    "operands overwritten before the commit is waited for": (
        "D: mbarrier",
        "D: @%p0 bra G; st.shared.u32 [%r2], %r0;\nG: mbarrier",
        "unordered-write",
    ),
    "an accumulator that nothing wrote": ("setp.ne.u32 %p3, %r0, 0;", "setp.eq.u32 %p3, %r0, 0;", "uninitialised-read"),
    "an accumulator of a register without a value": (
        "@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;",
        f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%r8], {{{15 * '%r0, '}%r19}}; tcgen05.wait::st.sync.aligned;\n"
        "bar.sync 0;\n"
        "@!%p1 bra D; setp.eq.u32 %p3, %r0, 0;",
        "uninitialised-read",
    ),
    "stores that are not waited for": (
        "@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;",
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r0};\nbar.sync 0;\n@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;",
        "unordered-write",
    ),
    "a store that is not waited for before its warp loads": (
        "// first epilogue\n",
        "// first epilogue\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r0};\n",
        "unordered-read",
    ),
    "rows are shifted while they are loaded": (
        "// first epilogue\n",
        "// first epilogue\n@%p1 tcgen05.shift.cta_group::1.down [%r7];\n",
        "unordered-read",
    ),
    "another warp stores where the product accumulates": (
        "@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;",
        "@%p0 bra H; bra I;\nH: tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r0};\nI:\n"
        "@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;",
        "unordered-write",
    ),
}


ORDERS = {"missing-tensor-fence", "unwaited-tensor-load"}
"""Orders that hold, but not by the letter of the ISA."""


def told(text, **descriptor):
    run = sanitized(text, **descriptor)
    return [*run.hazards, *run.advisories]


def sanitized(text, **descriptor):
    word = int(InstrDescriptor("f16", 128, 16, **descriptor))
    a, b = (int(SmemDescriptor(start, 16, 256, layout_type=6)) for start in (0, 4096))
    if descriptor:
        b = int(SmemDescriptor(4096, 16, 512, layout_type=4))
    out = np.zeros(128, np.uint32)
    try:
        with simulate(sanitize=True) as run:
            load_ptx(text).launch("k", 1, 128, [out, word, a, b], smem=8192)
    except HazardError:
        pass
    return run


def hazards(text, **descriptor):
    return {one.kind for one in told(text, **descriptor)} - ORDERS


pytestmark = pytest.mark.filterwarnings("ignore::cutepy.sim.AdvisoryWarning")


def test_a_right_kernel_is_clean():
    assert hazards(KERNEL) == set()
    assert hazards(KERNEL.replace("@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;", _STORED)) == set()


FIRST = "@!%p1 bra D; setp.ne.u32 %p3, %r0, 0;"
STORED = f"""mov.u32 %r12, 0x4444EEEE; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+32], {{%r12}};
tcgen05.wait::st.sync.aligned;
bar.sync 0;
add.u32 %r13, %r7, 32; {FIRST}"""
SPARSE = (
    KERNEL.replace(FIRST, STORED).replace("tcgen05.mma.", "tcgen05.mma.sp.").replace("%d2, %r9", "%d2, [%r13], %r9")
)
WRONG_METADATA = {
    "clean": ("", "", None),
    "metadata that nothing wrote": (
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+32], {%r12};",
        "",
        "uninitialised-read",
    ),
    "metadata of the odd column": ("[%r8+32]", "[%r8+33]", "uninitialised-read"),
    "metadata without a value": ("mov.u32 %r12, 0x4444EEEE;", "", "uninitialised-read"),
    "no barrier behind the metadata": (
        "wait::st.sync.aligned;\nbar.sync 0;\nadd",
        "wait::st.sync.aligned;\nadd",
        "unordered-read",
    ),
    "metadata overwritten while they are read": (
        "D: mbarrier",
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8+32], {%r12};\nD: mbarrier",
        "unordered-write",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_METADATA)
def test_metadata_of_sparse_products_are_read(mistake):
    right, wrong, kind = WRONG_METADATA[mistake]
    found = hazards(SPARSE.replace(right, wrong), sparse=True)
    assert found == set() if kind is None else kind in found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_told(mistake):
    right, wrong, kind = MISTAKES[mistake]
    assert KERNEL.count(right) == 1
    found = hazards(KERNEL.replace(right, wrong))
    assert kind in found


def test_a_register_without_a_value_may_be_stored_where_nothing_computes_with_it():
    stored = "tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8+32], {%r0, %r19}; tcgen05.wait::st.sync.aligned;\n@!%p1 bra D;"
    assert hazards(KERNEL.replace("@!%p1 bra D;", stored)) == set()


MMA = "tcgen05.mma.cta_group::1.kind::f16 [%r7], %d1, %d2, %r9, %p3;"
USES_FIRST = (
    "tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n@!%p1 bra E;",
    "tcgen05.wait::ld.sync.aligned;\nadd.u32 %r16, %v0, 1; mul.wide.u32 %d4, %r0, 4; add.u64 %d4, %d0, %d4;\n"
    "st.global.u32 [%d4], %r16;\nbar.sync 0;\n@!%p1 bra E;",
)
"""Threads compute with what they load of the first product."""


def disabling(*words):
    """Return a product without output in the lanes of some words, all of whose bits are set."""
    registers = "mov.u32 %r14, 0xffffffff; mov.u32 %r15, 0; "
    return registers + MMA.replace("%r9,", f"%r9, {{{', '.join('%r14' if word else '%r15' for word in words)}}},")


@pytest.mark.parametrize(
    ("words", "kinds"),
    [((0, 0, 0, 0), set()), *((words, {"uninitialised-read"}) for words in ((1, 0, 0, 0), (1, 1, 1, 1)))],
)
def test_lanes_whose_output_is_disabled_are_not_written(words, kinds):
    found = hazards(KERNEL.replace(MMA, disabling(*words), 1).replace(*USES_FIRST))
    assert found == kinds


def test_lanes_of_a_pair_whose_output_is_disabled_are_not_written():
    text = OF_BOTH.replace("MMA", "tcgen05.mma.cta_group::2.kind::f16 [%r7], %d1, %d1, %r9, {OFF}, %p2;")
    every, none = 4 * ["%r14"], 4 * ["%r13"]
    assert of_both(text.replace("OFF", ", ".join([*none, *none]))) == (set(), True)
    assert of_both(text.replace("OFF", ", ".join([*none, *every]))) == ({"uninitialised-read"}, False)
    assert of_both(text.replace("OFF", ", ".join([*every, *none]))) == ({"uninitialised-read"}, False)


def test_lanes_whose_output_is_disabled_are_free_for_others():
    """Warp 0 loads its lanes, which the product in flight leaves as they are."""
    text = KERNEL.replace("@!%p1 bra E;\n", "@!%p1 bra E0;\n").replace(
        "E: mbarrier", f"E0: @%p0 bra E; {_LOAD} tcgen05.wait::ld.sync.aligned;\nE: mbarrier"
    )
    first, second = text.split("// second product\n")
    off = second.replace(MMA, disabling(1, 0, 0, 0))
    assert hazards(f"{first}// second product\n{off}") == set()
    assert "unordered-read" in hazards(f"{first}// second product\n{second}")


@pytest.mark.parametrize(("words", "kinds"), [((1, 0, 0, 0), set()), ((0, 0, 0, 0), {"uninitialised-read"})])
def test_products_accumulate_on_no_lanes_whose_output_is_disabled(words, kinds):
    """Warp 0 stores nothing to its lanes, and loads nothing from them."""
    text = (
        KERNEL.replace(
            FIRST,
            f"@!%p0 bra D; {_STORED}".replace("bar.sync 0;\n", "D: bar.sync 0;\n").replace(
                "@!%p1 bra D;", "@!%p1 bra D1;"
            ),
        )
        .replace("D: mbar", "D1: mbar")
        .replace("@!%p4 bra D;", "@!%p4 bra D1;")
    )
    text = text.replace(MMA, disabling(*words)).replace("st.global.u32 [%d4], %v0;", "@%p0 st.global.u32 [%d4], %v0;")
    assert hazards(text) == kinds


def test_a_copy_of_four_lanes_writes_no_others():
    """4x256b writes lanes 0, 32, 64 and 96; a load of 16 lanes takes fifteen that nothing has written."""
    load = f"// first epilogue\n{_LOAD}"
    of_16_lanes = "// first epilogue\ntcgen05.ld.sync.aligned.16x64b.x1.b32 {%v0}, [%r8];"
    text = KERNEL.replace(MMA, "tcgen05.cp.cta_group::1.4x256b [%r7], %d1;", 1).replace(*USES_FIRST)
    text = text.replace(load, of_16_lanes)
    assert hazards(text) == {"uninitialised-read"}
    stored = "st.global.u32 [%d4], %r16;"
    of_lane_0 = f"and.b32 %r17, %r0, 29; setp.eq.u32 %p5, %r17, 0;\n@%p5 {stored}"  # threads 0 and 2 of a warp have it
    assert hazards(text.replace(stored, of_lane_0)) == set()


WAIT = "D: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra D;\n"
RELAXED = "D: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p4, [%r5], 0; @!%p4 bra D;\n"


def test_a_relaxed_wait_orders_with_the_fence_of_the_tensor_core():
    assert KERNEL.count(WAIT) == 1
    assert hazards(KERNEL.replace(WAIT, f"{RELAXED}tcgen05.fence::after_thread_sync;\n")) == set()
    assert "unordered-read" in hazards(KERNEL.replace(WAIT, RELAXED))


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_relaxed_arrival_orders_with_the_fence_of_the_tensor_core(is_fenced):
    """In place of the barrier between a load and the product that overwrites, 128 threads arrive at an mbarrier."""
    text = KERNEL.replace(".b64 bar[2]", ".b64 bar[3]").replace(
        "mbarrier.init.shared.b64 [%r5+8], 1;",
        "mbarrier.init.shared.b64 [%r5+8], 1; mbarrier.init.shared.b64 [%r5+16], 128;",
    )
    fence = "tcgen05.fence::before_thread_sync; " if is_fenced else ""
    arrival = (
        f"tcgen05.wait::ld.sync.aligned;\n{fence}mbarrier.arrive.relaxed.cta.shared.b64 %d5, [%r5+16];\n@!%p1 bra E;\n"
        "J: mbarrier.try_wait.parity.shared.b64 %p4, [%r5+16], 0; @!%p4 bra J;\n"
    )
    barrier = "tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n@!%p1 bra E;\n"
    assert text.count(barrier) == 1
    found = hazards(text.replace(barrier, arrival))
    assert found == set() if is_fenced else "unordered-write" in found


RED = KERNEL.replace("sm_100a", "sm_103a").replace(
    "tcgen05.ld.sync.aligned.32x32b.x8.b32 {", "tcgen05.ld.red.sync.aligned.32x32b.x8.max.f32 {"
)
RED = RED.replace("%v7}, [%r8]", "%v7}, %r14, [%r8]")


def test_loads_that_reduce_compute_with_what_they_read():
    assert hazards(RED) == set()
    assert hazards(RED.replace("st.global.u32 [%d4], %v0;", "st.global.u32 [%d4], %r14;")) == set()
    assert "uninitialised-read" in hazards(RED.replace("%r14, [%r8]", "%r14, [%r8+32]"))


def test_a_load_ends_where_its_reduced_value_is_read():
    """The store that overwrites the columns comes after the reader of that register, and not without one."""
    last = "tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n@!%p1 bra E;"
    assert RED.count(last) == 1
    read = last.replace("tcgen05.wait::ld.sync.aligned;", "add.u32 %r15, %r14, 1;")
    assert hazards(RED.replace(last, read)) == set()
    assert "unordered-write" in hazards(RED.replace(last, last.replace("tcgen05.wait::ld.sync.aligned;", "")))


# A load that is released before its registers are there: no wait, and who overwrites the columns may come first.

LOADED = "{%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%r8]; tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\n@!%p1 bra E;"


@pytest.mark.parametrize(
    ("then", "kinds"),
    [
        ("\nbar.sync 0;", {"unordered-write"}),
        ("\nadd.u32 %r10, %v3, %r0;\nbar.sync 0;", set()),
        ("\nbar.sync 0;\nadd.u32 %r10, %v3, %r0;", {"unordered-write"}),
        ("\ntcgen05.wait::st.sync.aligned;\nbar.sync 0;", {"unordered-write"}),
        ("\n@%p1 bra K; K:\nadd.u32 %r10, %v3, %r0;\nbar.sync 0;", set()),
    ],
    ids=["no wait", "a register is read", "a register is read too late", "another wait", "in another block"],
)
def test_a_load_ends_at_its_wait_or_where_a_register_is_read(then, kinds):
    assert KERNEL.count(LOADED) == 1
    changed = LOADED.replace(" tcgen05.wait::ld.sync.aligned;\nbar.sync 0;", then)
    assert hazards(KERNEL.replace(LOADED, changed)) == kinds


@pytest.mark.parametrize(("used", "kinds"), [("%v0, %v1", set()), ("%v1, %r0", {"unordered-write"})])
def test_of_two_loads_each_must_have_ended(used, kinds):
    """The first warp loads twice, alone: an older load counts beside the last."""
    load = "tcgen05.ld.sync.aligned.32x32b.x1.b32"
    twice = f"@%p0 bra L; {load} {{%v0}}, [%r8]; {load} {{%v1}}, [%r8]; add.u32 %r10, {used}; L: bar.sync 0;"
    assert hazards(KERNEL.replace(f"{_LOAD} tcgen05.wait::ld.sync.aligned;\nbar.sync 0;", twice, 1)) == kinds


READS, READS_OTHER, AWAITS = "add.u32 %r1, %r2, 1", "add.u32 %r1, %r3, 1", "tcgen05.wait::ld.sync.aligned"


@pytest.mark.parametrize(
    ("then", "ended"),
    [
        ((READS,), True),
        ((AWAITS, READS), False),
        ((READS, AWAITS), True),
        ((READS_OTHER, AWAITS, READS), False),
        ((READS_OTHER, READS, AWAITS), True),
        ((READS_OTHER, AWAITS), False),
    ],
)
def test_a_load_that_no_wait_ends_is_ended_by_who_reads_its_register_first(then, ended):
    load = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r0]"
    body = "; ".join(("{ .reg .b32 %r<4>; mov.u32 %r0, 0; mov.u32 %r3, 0", load, *then, "ret; }"))
    module = parse_module(f".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() {body}")
    function = module.functions["k"]
    by_text = {i.text: i.index for i in function.instructions}
    assert ended_by_use(function) == ({by_text[READS]: frozenset({by_text[load]})} if ended else {})


# Orders that hold without the fences of the tensor core, or by the registers of a load.

BEFORE, AFTER = (f"tcgen05.fence::{when}_thread_sync;\n" for when in ("before", "after"))
_RELEASE = "wait::ld.sync.aligned;\n", "bar.sync 0;\n", "@!%p1 bra E;"
FENCED = KERNEL.replace("".join(_RELEASE), f"{_RELEASE[0]}{BEFORE}{_RELEASE[1]}{AFTER}{_RELEASE[2]}")
for _name in ("first", "second"):
    FENCED = FENCED.replace(f"// {_name} epilogue\n", f"// {_name} epilogue\n{AFTER}")


def orders(text):
    """Return what orders lack: the kind, what is missing, and what the two operations are."""
    return {(one.kind, one.diagnosis.case, *(side.what for side in one.sides)) for one in told(text)}


MMA_LOAD = ("tcgen05.mma write", "tcgen05.ld read")
LOAD_MMA = ("tcgen05.ld read", "tcgen05.mma write")
MISSING = "missing-tensor-fence"


def test_fences_of_the_tensor_core_order_by_the_letter():
    assert told(FENCED) == []
    assert orders(KERNEL) == {
        (MISSING, "tensor-memory-after", *MMA_LOAD),
        (MISSING, "tensor-memory-after", *LOAD_MMA),
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FENCED.replace(BEFORE, ""), {(MISSING, "tensor-memory-before", *LOAD_MMA)}),
        (FENCED.replace(f"// first epilogue\n{AFTER}", ""), {(MISSING, "tensor-memory-after", *MMA_LOAD)}),
        (FENCED.replace(f"bar.sync 0;\n{AFTER}", "bar.sync 0;\n"), {(MISSING, "tensor-memory-after", *LOAD_MMA)}),
        (
            FENCED.replace(f"{BEFORE}bar.sync 0;\n{AFTER}", f"bar.sync 0;\n{BEFORE}{AFTER}"),
            {(MISSING, "tensor-memory-before", *LOAD_MMA)},
        ),
        (
            FENCED.replace(f"{BEFORE}bar.sync 0;\n{AFTER}", f"{BEFORE}{AFTER}bar.sync 0;\n"),
            {(MISSING, "tensor-memory-after", *LOAD_MMA)},
        ),
        (
            FENCED.replace(f" tcgen05.wait::ld.sync.aligned;\n{BEFORE}", f"\nadd.u32 %r10, %v3, %r0;\n{BEFORE}"),
            {("unwaited-tensor-load", "tensor-memory-wait", *LOAD_MMA)},
        ),
        (
            FENCED.replace(
                f" tcgen05.wait::ld.sync.aligned;\n{BEFORE}",
                f"\nadd.u32 %r10, %v3, %r0;\ntcgen05.wait::ld.sync.aligned;\n{BEFORE}",
            ),
            set(),
        ),
    ],
    ids=[
        *("no fence before", "none after the commit", "none after the barrier", "before, too late", "after, too early"),
        *("a register is read", "a register is read before the wait"),
    ],
)
def test_what_an_order_lacks_is_told(text, found):
    assert text != FENCED
    assert orders(text) == found


def test_a_warp_needs_no_fence_between_its_own_operations():
    loaded = f"{_RELEASE[0]}{BEFORE}"
    stored = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r0};\ntcgen05.wait::st.sync.aligned;\n"
    assert FENCED.count(loaded) == 1
    assert told(FENCED.replace(loaded, f"{_RELEASE[0]}{stored}{BEFORE}")) == []


_OTHER = f"mov.u32 %r16, {int(InstrDescriptor('tf32', 128, 16))}; {MMA.replace('f16', 'tf32').replace('%r9', '%r16')}\n"
_OF_64 = f"mov.u32 %r16, {int(InstrDescriptor('f16', 64, 16))}; {MMA.replace('%r9', '%r16')}\n"
IN_ORDER = {
    "one accumulator and shape": (f"{MMA}\n{MMA}", None),
    "K of 8, then of 16": (f"{_OTHER}{MMA}", "writes"),
    "64 rows, then 128": (f"{_OF_64}{MMA}", "writes"),
    "64 rows, awaited, then 128": (
        f"{_OF_64}tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r5+16];\n"
        f"Z: mbarrier.try_wait.parity.shared.b64 %p5, [%r5+16], 0; @!%p5 bra Z;\n{MMA}",
        None,
    ),
    "A is the D of the first": (
        f"{MMA}\nadd.u32 %r15, %r7, 32; {MMA.replace('[%r7], %d1', '[%r15], [%r7]')}",
        "reads",
    ),
    "A is written by the next": (
        f"{MMA}\n{MMA.replace('[%r7], %d1', '[%r15], [%r7]')}\n{MMA}".replace(MMA, f"add.u32 %r15, %r7, 32; {MMA}", 1),
        "reads",
    ),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_certificate_names_pairs_that_the_isa_leaves_open(name):
    """PTX ISA, "Pipelined tcgen05 Instructions": MMAs of one accumulator and shape are in order."""
    text, access = IN_ORDER[name]
    init = "mbarrier.init.shared.b64 [%r5], 1;"
    kernel = KERNEL.replace("bar[2]", "bar[3]").replace(init, f"{init} mbarrier.init.shared.b64 [%r5+16], 1;")
    run = sanitized(kernel.replace(MMA, text, 1))
    assert [one.kind for one in run.hazards] == []
    (certificate,) = run.certificates
    assert certificate.is_certified
    assumed = [one for one in certificate.assumptions if "the order in which a thread issues them" in one]
    if access is None:
        assert assumed == []
    else:
        assert assumed[0].endswith(
            f"`tcgen05.mma` (line 21 of the PTX) that writes and `tcgen05.mma` (line 22 of the PTX) that {access}"
        )


PAIR = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 64 .reqnctapercluster 2 {
.reg .b32 %r<20>; .reg .b64 %d<6>; .reg .pred %p<5>; .shared .align 8 .b64 bar; .shared .align 4 .b32 base;
.reg .b32 %v; ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.ne.u32 %p0, %r1, 0;
setp.eq.u32 %p1, %r0, 0; mov.u32 %r5, bar; mov.u32 %r9, %cluster_ctarank; xor.b32 %r10, %r9, 1;
mapa.shared::cluster.u32 %r11, %r5, %r10;
@%p0 bra B; mov.u32 %r6, base; tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r6], 32;
B: @!%p1 bra C; mbarrier.init.shared.b64 [%r5], 64; fence.mbarrier_init.release.cluster;
C: barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r7, [base]; shl.b32 %r8, %r1, 21;
add.u32 %r8, %r7, %r8; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r0}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v}, [%r8]; tcgen05.wait::ld.sync.aligned;
bar.sync 0; mbarrier.arrive.shared::cluster.b64 _, [%r11];
WAIT
FREE
mad.lo.u32 %r12, %r9, 64, %r0; mul.wide.u32 %d4, %r12, 4; add.u64 %d4, %d0, %d4; st.global.u32 [%d4], %v; ret; }
"""
PEER_WAIT = "D: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra D;"
FREE = "@%p0 bra F; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r7, 32; F:"


@pytest.mark.parametrize(
    ("wait", "free", "kinds"),
    [
        (PEER_WAIT, FREE, set()),
        (FREE, PEER_WAIT, {"unordered-write"}),
        ("", FREE, {"unordered-write", "exited-peer"}),
    ],
    ids=["the peer is waited for", "freed before", "never waited for"],
)
def test_both_ctas_of_a_pair_have_done_with_columns_that_they_free(wait, free, kinds):
    """PTX ISA, "tcgen05.dealloc": both warps synchronise tensor memory accesses before they free it together."""
    out = np.zeros(128, np.uint32)
    try:
        with simulate(sanitize=True) as run:
            load_ptx(PAIR.replace("WAIT", wait).replace("FREE", free)).launch("k", 2, 64, [out], cluster=2)
    except HazardError:
        pass
    assert {hazard.kind for hazard in run.hazards} == kinds
    assert out.tolist() == [*range(64)] * 2


GIVES_UP = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


@pytest.mark.parametrize(("barrier", "kinds"), [("bar.sync 0;", set()), ("", {"unordered-write"})])
def test_the_permit_to_allocate_is_given_up_after_allocations(barrier, kinds):
    """Warp 1 gives it up; without the barrier `tcgen05.alloc` of warp 0 ends in an error in some schedules."""
    text = KERNEL.replace("B: @!%p1", f"B: {barrier} setp.ne.u32 %p5, %r1, 1; @%p5 bra B1; {GIVES_UP}\nB1: @!%p1")
    assert hazards(text) == kinds


OF_BOTH = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 out, .param .u32 word, .param .u64 a) .reqntid 128 .reqnctapercluster 2 {
.reg .b32 %r<20>; .reg .b16 %h; .reg .b64 %d<6>; .reg .pred %p<5>; .shared .align 8 .b64 bar;
.shared .align 4 .b32 base; ld.param.u64 %d0, [out]; ld.param.u32 %r9, [word]; ld.param.u64 %d1, [a];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.ne.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r0, 0; mov.u32 %r5, bar;
mov.u32 %r10, %cluster_ctarank; mov.b16 %h, 3; mov.u32 %r13, 0; mov.u32 %r14, -1; setp.ne.u32 %p2, %r0, %r0;
mov.u32 %r2, s; shr.u32 %r3, %r2, 4; cvt.u64.u32 %d3, %r3; add.u64 %d1, %d1, %d3; mov.u64 %d2, 8192;
@%p1 st.bulk.weak.shared::cta [%r2], %d2, 0; fence.proxy.async.shared::cta;
@%p0 bra B; mov.u32 %r6, base; tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r6], 32;
B: @!%p1 bra C; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
C: barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r7, [base]; shl.b32 %r8, %r1, 21;
add.u32 %r8, %r7, %r8; setp.eq.and.u32 %p3, %r10, 0, %p1;
@!%p3 bra D;
MMA
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r5], %h;
D: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra D; tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r11}, [%r8]; tcgen05.wait::ld.sync.aligned;
add.u32 %r11, %r11, 1; mad.lo.u32 %r12, %r10, 128, %r0; mul.wide.u32 %d4, %r12, 4; add.u64 %d4, %d0, %d4;
st.global.u32 [%d4], %r11; tcgen05.fence::before_thread_sync; barrier.cluster.arrive; barrier.cluster.wait;
@%p0 bra F; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r7, 32;
F: ret; }
"""


def of_both(text):
    """Return the hazards of a product of a pair, and whether it is certified."""
    out, word = np.zeros(256, np.uint32), int(InstrDescriptor("f16", 256, 32))
    try:
        with simulate(sanitize=True) as run:
            args = [out, word, int(SmemDescriptor(0, 16, 256, layout_type=6))]
            load_ptx(text).launch("k", 2, 128, args, cluster=2, smem=8192)
    except HazardError:
        pass
    return {hazard.kind for hazard in run.hazards}, all(not one.reasons for one in run.certificates)


COMMITTED = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k() .reqntid 32 .reqnctapercluster 2 {
.reg .b32 %r<10>; .reg .b16 %h; .reg .pred %p<5>; .shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; mov.u32 %r5, bar; mov.u32 %r9, %cluster_ctarank;
setp.eq.u32 %p2, %r9, 0; and.pred %p3, %p1, %p2; mov.b16 %h, 3;
@!%p1 bra C; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
C: barrier.cluster.arrive; barrier.cluster.wait;
@!%p3 bra D;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r5], %h;
D: @SKIPS bra F;
E: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra E;
F: ret; }
"""


@pytest.mark.parametrize(("skips", "kinds"), [("%p4", set()), ("!%p2", {"exited-peer"})], ids=["waits", "exits"])
def test_a_cta_waits_for_the_commits_of_its_peer_before_it_ends(skips, kinds):
    """sglang 32907: the odd CTA of a pair ended while the even one's commit was on its way to it."""
    text = COMMITTED.replace("@SKIPS", f"@{skips}").replace("D: @", "D: setp.ne.u32 %p4, %r0, %r0; @")
    try:
        with simulate(sanitize=True) as run:
            load_ptx(text).launch("k", 2, 32, [], cluster=2)
    except HazardError:
        pass
    assert {hazard.kind for hazard in run.hazards} == kinds


BEHIND = "{%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%r8]"


_ALLOCATES = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6], 64;\n"
_READS = "ld.shared.u32 %r10, [base];"


def test_the_warp_that_allocates_reads_the_address_without_a_barrier():
    """PTX ISA, the example of tcgen05.alloc: ld.shared of the address, and its use, behind it."""
    uses = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r10], {%r0}; tcgen05.wait::st.sync.aligned;\n"
    assert hazards(KERNEL.replace(_ALLOCATES, f"{_ALLOCATES}{_READS} {uses}")) == set()


@pytest.mark.parametrize("waits", [True, False])
def test_who_waits_for_one_lane_of_the_warp_that_allocates_knows_the_address(waits):
    text = KERNEL.replace("bar[2]", "bar[3]").replace(
        "@%p0 bra B;", "@%p1 mbarrier.init.shared.b64 [%r5+16], 1; bar.sync 0; @%p0 bra B;"
    )
    text = text.replace(_ALLOCATES, f"{_ALLOCATES}@%p1 mbarrier.arrive.shared.b64 _, [%r5+16];\n")
    wait = "J: mbarrier.try_wait.parity.shared.b64 %p5, [%r5+16], 0; @!%p5 bra J;"
    text = text.replace("B: @!%p1 bra C;", f"B: {wait if waits else ''} {_READS} @!%p1 bra C;")
    assert hazards(text) == (set() if waits else {"unordered-read"})


@pytest.mark.parametrize("fenced", [True, False])
def test_an_address_is_written_after_its_lanes_own_stores_and_needs_a_proxy_fence(fenced):
    """Over the first word of A, to which thread 0 has stored, and which the product reads."""
    text = KERNEL.replace("mov.u32 %r6, base; ", "mov.u32 %r6, s; ").replace("[base]", "[%r2]")
    text = text.replace(_ALLOCATES, f"{_ALLOCATES}{'fence.proxy.async.shared::cta;' if fenced else ''}\n")
    assert hazards(text) == (set() if fenced else {"missing-proxy-fence"})


def test_an_allocation_orders_nothing_else():
    """A write of one lane before an allocation is unordered for the other lanes behind it."""
    text = KERNEL.replace(_ALLOCATES, f"@%p1 st.shared.u32 [%r2], %r0; {_ALLOCATES}ld.shared.u32 %r10, [%r2];\n")
    assert "unordered-read" in hazards(text)


def test_registers_of_columns_that_nothing_wrote_have_no_value():
    assert BEHIND in KERNEL
    assert "uninitialised-read" in hazards(KERNEL.replace(BEHIND, BEHIND.replace("[%r8]", "[%r8+16]")))


def test_columns_freed_after_a_load_that_nobody_waited_for_are_told():
    text = FENCED.replace(f" tcgen05.wait::ld.sync.aligned;\n{BEFORE}", f"\nadd.u32 %r10, %v3, %r0;\n{BEFORE}")
    assert "unwaited-tensor-load" in {one.kind for one in told(text)}


def test_instructions_of_a_pair_need_a_cluster_of_pairs():
    with refuses(SimulationError), simulate():
        load_ptx(PAIR.replace("WAIT", "").replace("FREE", FREE).replace(".reqnctapercluster 2", "")).launch(
            "k", 2, 64, [np.zeros(128, np.uint32)]
        )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("dealloc.cta_group::2", "dealloc.cta_group::1"),
        ("alloc.cta_group::2.sync.aligned.sh", "alloc.cta_group::1.sync.aligned.sh"),
    ],
)
def test_a_kernel_is_of_one_cta_or_of_pairs(right, wrong):
    text = PAIR.replace("WAIT", "").replace("FREE", FREE)
    assert right in text
    with refuses(PtxSyntaxError):
        load_ptx(text.replace(right, wrong))
