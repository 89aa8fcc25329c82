"""Names of what is in shared memory, and roles of warps, as reports have them."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.ptx.barrier_names import barrier_name, made_at, ring
from cutepy.sim.ptx.model import Instruction, SourceLine
from cutepy.sim.sanitize.reports.excerpts import GLOBAL, operand_of

LINES = {
    "cute.copy(tma_a, tAgA[None, k], tAsA[None, stage], tma_bar_ptr=full)": ("sA", ""),
    "cute.copy(atom, tAsA[None, 0], tArA)": ("", "sA"),
    "cute.copy(self.copy, rD, self.tRS_sD[(None, buffer)])": ("sD", ""),
    "cute.copy(tma_c, bSG_sD[(None, buffer)], bSG_gD[(None, at)])": ("", "sD"),
    "cute.autovec_copy(sQ, rQ)": ("sQ", "sQ"),
    "sK[i, j] = gK[i, j]": ("sK", ""),
    "gK[i, j] = sK[i, j]": ("", "sK"),
    "gK[i, j] = sK[i, j] + sV[i, j]": ("", ""),
    "buffer[thread] = x": ("buffer", ""),
    "y[thread] = buffer[thread] + 1": ("y", "buffer"),
    "x = compute(thread)": ("", ""),
    "pipe.load(sV, stage)": ("sV", "sV"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_names_what_it_writes_and_reads(line, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(f"def kernel():\n    {line}\n")
    source = SourceLine(str(file), 2)
    assert (operand_of(source, True), operand_of(source, False)) == LINES[line]


def test_a_caller_names_what_a_function_calls_otherwise(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("def put(to, x):\n    to[0] = x\n\n\nput(sA, 1)\n")
    inner = SourceLine(str(file), 2)
    assert operand_of(inner, True) == "to"
    assert operand_of(SourceLine(str(file), 2, SourceLine(str(file), 5)), True) == "sA"


def test_statements_of_several_lines_are_read_as_one(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("cute.copy(\n    atom,\n    tBgB[k],\n    tBsB[stage],\n)\n")
    assert {operand_of(SourceLine(str(file), line), True) for line in range(1, 6)} == {"sB"}


INITIALISES = "mbarrier_init(self.full + stage, 1)\nmbarrier_init(self.empty + stage, 8)\n"
RINGS = [(0, 1), (0x10, 2), (0x30, 2)]
"""Addresses of rings, and their stages: the full ones, then as many empty ones."""


def initialised(tmp_path, kernel, rings):
    """Return the instructions that initialise rings, as the last line of a kernel says, one ring after another."""
    kernel_file, ring_file = tmp_path / "kernel.py", tmp_path / "ring.py"
    kernel_file.write_text(kernel)
    ring_file.write_text(INITIALISES)
    caller = SourceLine(str(kernel_file), kernel.count("\n"))
    places = [
        (at + 8 * stage + 8 * stages * part, part) for at, stages in rings for stage in range(stages) for part in (0, 1)
    ]
    return {
        address: Instruction(n, "mbarrier.init", (), None, "", SourceLine(str(ring_file), part + 1, caller), n, 1, "")
        for n, (address, part) in enumerate(places)
    }


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize(("around", "name"), [("rings", "rings"), ("zip(rings, counts)", "ring")])
def test_rings_that_one_loop_initialises_are_told_apart(order, around, name, tmp_path):
    kernel = f"rings = make()\nfor ring in {around}:\n    ring.initialise()\n"
    made = initialised(tmp_path, kernel, [RINGS[n] for n in order])
    first, second, third = (f"{name}[{order.index(n)}]" for n in range(3))
    assert barrier_name(0x08, made) == f"mbarrier {first}.empty (0x8)"
    assert barrier_name(0x10, made) == f"mbarrier {second}.full, stage 0 (0x10)"
    assert barrier_name(0x28, made) == f"mbarrier {second}.empty, stage 1 (0x28)"
    assert barrier_name(0x38, made) == f"mbarrier {third}.full, stage 1 (0x38)"
    assert ring(0x38, made) == [0x30, 0x38]
    assert [at and at.line for at in [made_at(0x38, made)]] == [1 if name == "rings" else None]


def test_a_loop_over_stages_has_one_ring(tmp_path):
    """Its full and its empty barriers may alternate."""
    kernel = "ring = make()\nfor stage in stages:\n    ring.initialise(stage)\n"
    made = initialised(tmp_path, kernel, [(16 * stage, 1) for stage in range(3)])
    assert barrier_name(0x18, made) == "mbarrier ring.empty, stage 1 (0x18)"


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_pipeline_has_full_barriers_then_as_many_empty_ones(stages, tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("loads = PipelineTmaAsync.create(num_stages=stages)\n")
    line = SourceLine(str(kernel), 1)
    made = {8 * n: Instruction(n, "mbarrier.init", (), None, "", line, n, 1, "") for n in range(2 * stages)}
    parts = {"full": list(made)[:stages], "empty": list(made)[stages:]}
    for part, addresses in parts.items():
        for stage, at in enumerate(addresses):
            said = f", stage {stage}" if stages > 1 else ""
            assert barrier_name(at, made) == f"mbarrier loads.{part}{said} ({at:#x})"
            assert ring(at, made) == addresses


HEAD = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "{file}"
.visible .entry kernel(.param .u64 p0)
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<4>;
    .shared .align 1024 .b8 __dynamic[4096];
    ld.param.u64 %rd1, [p0];
    mov.u32 %r1, __dynamic; mov.u32 %r2, %tid.x; add.u32 %r8, %r1, 2048;
    setp.eq.u32 %p1, %r2, 0;
    .loc 1 2 0
    @%p1 mbarrier.init.shared.b64 [%r8], 1;
    @%p1 mbarrier.init.shared.b64 [%r8+8], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @!%p1 bra WAIT;
    mov.u32 %r3, 0;
LOOP:
    shl.b32 %r4, %r3, 9; add.u32 %r5, %r1, %r4;
    shl.b32 %r6, %r3, 3; add.u32 %r7, %r8, %r6;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 512;
    .loc 1 5 0
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 512, [%r7];
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, 2;
    @%p2 bra LOOP;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r8], 0;
    @!%p3 bra WAIT;
    .loc 1 6 0
    ld.shared.u32 %r9, [%r1+{offset}];
LAST:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r8+8], 0;
    @!%p3 bra LAST;
    ret;
}}
"""
_COPY = """.loc 1 5 0
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+{to}], [%rd1], 256, [%r8+{full}];
"""
UNROLLED = [  # two stages of two copies each, the second stage first
    f"mbarrier.arrive.expect_tx.shared.b64 _, [%r8+{full}], 512;\n"
    + _COPY.format(to=to, full=full)
    + _COPY.format(to=to + 256, full=full)
    for to, full in ((512, 8), (0, 0))
]
REUSE = """bar.sync 0;
shl.b32 %r10, %r2, 2; xor.b32 %r11, %r10, 128;
add.u32 %r10, %r10, %r1; add.u32 %r11, %r11, %r1;
.loc 1 7 0
st.shared.u32 [%r10], %r2;
.loc 1 8 0
ld.shared.u32 %r12, [%r11];
"""
SOURCE = """
cute.arch.mbarrier_init(full + stage, 1)
def load():
    # the second stage is read without a wait
    cute.copy(bulk, gX[k], sX[stage], mbar_ptr=full + stage)
    x = sX[stage]
"""


def hazards(offset, tmp_path, source=SOURCE, block=160, unrolled=False):
    file = tmp_path / "kernel.py"
    file.write_text(source)
    text = HEAD.format(file=file, offset=offset)
    if unrolled:
        start, end = text.index("LOOP:"), text.index("WAIT:\n")
        text = text[:start] + "".join(UNROLLED) + text[end:]
    return launched(text, block)


def launched(text, block=160):
    """Run a kernel of one pointer."""
    data = np.zeros(1024, np.uint8)
    run = Run((), None, sanitize=True)
    run.adopt(data)
    module = LoadedModule(text)
    parameters = (np.uint64(data.ctypes.data).tobytes(),)
    run.launch(KernelCall(module, "kernel", (1, 1, 1), (block, 1, 1), parameters=parameters))
    # The copies to the second stage are never waited for.
    return tuple(hazard for hazard in run.hazards if hazard.kind != "in-flight-at-exit")


def test_stages_are_told_by_their_mbarriers(tmp_path):
    (found,) = hazards(512, tmp_path)
    assert found.kind == "unordered-read"
    assert found.buffer == "sX stage 1"
    assert found.address == 512
    assert found.before.role == "bulk copy of load"
    assert found.before.who == "bulk copy of load, issued by warp 0, for CTA (0, 0, 0)"
    assert found.before.warp == 0
    assert found.after.role == ""  # no warp has another role than others


@pytest.mark.parametrize(("offset", "part"), [(512, 0), (772, 1)])
def test_copies_that_signal_one_mbarrier_fill_one_stage(offset, part, tmp_path):
    (found,) = hazards(offset, tmp_path, unrolled=True)
    assert found.buffer == f"sX stage 1 part {part}"


TWO_RINGS = """
def initialise(rings):
    for ring in rings:
        ring.put(mbarrier_init(full, 1))
        ring.load(gX, 0)
"""


def test_copies_of_a_line_are_told_apart_by_their_rings(tmp_path):
    """One barrier each of two rings that a loop initialises, with a copy for each of them from one line."""
    text = HEAD.replace("[%r8+8], 1;", "[%r8+16], 1;")
    text = text.format(file=tmp_path / "kernel.py", offset=512).replace(".loc 1 2 0", ".loc 1 4 0")
    start, end = text.index("LOOP:"), text.index("WAIT:\n")
    copies = "".join(
        f"mbarrier.arrive.expect_tx.shared.b64 _, [%r8+{full}], 256;\n" + _COPY.format(to=to, full=full)
        for to, full in ((0, 0), (512, 16))
    )
    text = (text[:start] + copies + text[end:]).replace("[%r8+8], 0", "[%r8+16], 0")
    (tmp_path / "kernel.py").write_text(TWO_RINGS)
    (found,) = launched(text)
    assert found.buffer == "what TMA of initialise loads for rings[1]"


REMARKS = """// smem region sX: 2 x 512 bytes at 0
// smem region sY: 1 x 256 bytes at 512
"""


@pytest.mark.parametrize(
    ("remarks", "buffer"),
    [(2, "sX or sY"), (1, "sX stage 1"), (0, "what TMA of load loads stage 1")],
)
def test_memory_has_the_names_of_a_plan(remarks, buffer, tmp_path):
    """The lines name nothing; the second region lies in the first one's second stage."""
    source = SOURCE.replace("sX[stage]", "to(stage)").replace("gX[k]", "of(k)")
    (tmp_path / "kernel.py").write_text(source)
    told = "".join(f"{line}\n" for line in REMARKS.splitlines()[:remarks])
    text = HEAD.format(file=tmp_path / "kernel.py", offset=512).replace("LOOP:", f"{told}LOOP:")
    (found,) = launched(text)
    assert found.buffer == buffer


def test_memory_that_is_reused_is_called_as_by_those_that_use_it(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE + "    sY[thread] = x\n    y[thread] = sY[thread ^ 32]\n")
    (found,) = launched(HEAD.format(file=file, offset=0).replace("ret;", f"{REUSE}ret;"), block=64)
    assert found.address < 256  # where the first stage was
    assert found.buffer == "sY"


def test_without_a_name_it_is_what_a_copy_loads(tmp_path):
    (found,) = hazards(516, tmp_path, source="\n\ndef load():\n    pass\n    issue(k)\n    use(k)\n")
    assert found.buffer == "what TMA of load loads stage 1"


def test_what_is_right_has_no_name_to_tell(tmp_path):
    assert hazards(0, tmp_path) == ()


GLOBAL_LINES = {
    "cute.autovec_copy(tCrC, thread.partition_C(gC))": ("gC", "gC"),
    "cute.copy(store, sC, mC)": ("mC", ""),
    "y[thread] = sX[63 - thread]": ("y", ""),
    "y[thread] += 1": ("y", "y"),
    "y[thread] += x[thread]": ("y", ""),
    "sX[thread] = x[thread]": ("", "x"),
    "issue(a, b)": ("", ""),
}


@pytest.mark.parametrize("line", GLOBAL_LINES)
def test_a_line_names_global_memory(line, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(line)
    source = SourceLine(str(file), 1)
    assert (operand_of(source, True, GLOBAL), operand_of(source, False, GLOBAL)) == GLOBAL_LINES[line]


def test_global_memory_is_called_by_the_line_and_the_argument(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("y[0] = thread\n")
    text = f"""{".version 8.7"}
.target sm_90a
.address_size 64
.file 1 "{file}"
.visible .entry kernel(.param .u32 n, .param .u64 y)
{{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [y];
    mov.u32 %r0, %tid.x;
    .loc 1 1 0
    st.global.u32 [%rd0+8], %r0;
    ret;
}}
"""
    run, data = Run((), None, sanitize=True), np.zeros(64, np.uint32)
    run.adopt(data)
    given = bytes(4), np.uint64(data[4:].ctypes.data).tobytes()
    run.launch(KernelCall(LoadedModule(text), "kernel", (1, 1, 1), (64, 1, 1), parameters=given))
    (found,) = run.hazards
    what = "y (global memory, byte 0x8 of argument 1, a tensor of shape (64,) and type uint32)"
    assert found.title.startswith(f"unordered-write: {what} of kernel")
