"""PTX without a launch: what is constant is told, by field of a descriptor; what isn't, is known at launch."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cutepy.anatomy import ExplainError, explain
from cutepy.anatomy.sections import sections
from cutepy.anatomy.words import UNKNOWN
from cutepy.layouts.sm90 import TensorMap
from tests.anatomy.kernels import HEAD, RING, line_of
from tests.messages import refuses


@pytest.fixture
def ring_kernel():
    (kernel,) = explain(RING, assembler=False).kernels
    return kernel


def test_an_mma_has_its_shape_types_and_majors(ring_kernel):
    (mma,) = ring_kernel.mmas
    assert (mma.shape_mnk, mma.accumulator, mma.a.dtype, mma.b.dtype) == ((64, 8, 16), "f32", "f16", "f16")
    assert (mma.a.major, mma.b.major) == ("K", "MN")  # the last two immediates are 0 and 1
    assert (mma.instructions, mma.issued, mma.warpgroups) == (1, None, ())
    assert mma.site.lines == ("/somewhere/ring.py:23",)
    assert mma.site.ptx_lines == (line_of(RING, "wgmma.mma_async"),)


def test_fields_of_a_descriptor_are_known_though_a_loop_moves_its_start(ring_kernel):
    (mma,) = ring_kernel.mmas
    high = 1073741888  # swizzle 1 in the top bits, SBO 64 units
    for operand, units in ((mma.a, 0), (mma.b, 2)):
        assert (operand.lbo, operand.sbo, operand.base_offset) == (0, (high & 0x3FFF) * 16, 0)
        assert operand.swizzle == "SW128"
        assert operand.descriptors == (high << 32 | (2048 // 16 + units),)
        assert operand.start_addresses == (2048 + 16 * units,)
        assert not operand.complete
    text = explain(RING, assembler=False).text(width=None)
    assert text.count("0x800 when first reached; later ones are known at launch") == 1


def test_without_a_loop_the_descriptors_are_all_there_are():
    straight = RING.replace("@%p4 bra $L_loop;", "").replace("selp.b32 %r5, 0, %r15, %p3;", "")
    (mma,) = explain(straight, assembler=False).kernels[0].mmas
    assert mma.a.complete
    assert mma.a.start_addresses == (2048,)
    assert "when first reached" not in explain(straight, assembler=False).text(width=None)


def test_a_descriptor_from_memory_is_known_at_launch():
    loaded = RING.replace("mov.b64 %rd2, {%r13, %r14};", "ld.global.b64 %rd2, [%rd1];")
    (mma,) = explain(loaded, assembler=False).kernels[0].mmas
    assert (mma.a.descriptors, mma.a.lbo, mma.a.sbo, mma.a.swizzle, mma.a.base_offset) == ((), None, None, None, None)
    assert "LBO known at launch" in explain(loaded, assembler=False).text()


@pytest.mark.parametrize("entry", ["ring", "_Z4ringi"])
def test_an_entry_of_another_name_is_below_the_kernels(entry, ring_kernel):
    whole = explain(RING, assembler=False)
    lines = replace(whole, kernels=(replace(ring_kernel, name="ring", entry=entry),)).text().splitlines()
    below = lines[lines.index("Kernel ring") + 1]
    assert below.strip() == ("" if entry == "ring" else entry)


def test_mbarriers_are_grouped_by_the_line_that_made_them_and_who_uses_them(ring_kernel):
    rings = [barrier for barrier in ring_kernel.barriers if barrier.kind == "mbarrier"]
    by_address = {address: barrier for barrier in rings for address in barrier.addresses}
    # Dynamic shared memory is behind 24 bytes of static, at a multiple of 1024.
    assert sorted(by_address) == [1024, 1032, 1040, 1048]
    assert [by_address[at].arrivals for at in (1024, 1032, 1040, 1048)] == [1, 1, 4, 4]
    assert by_address[1040] is by_address[1048]
    (expects,) = by_address[1024].of("expect_tx")
    assert expects.amounts == (8192,)
    assert by_address[1024].of("wait")[0].site.lines == ("/somewhere/ring.py:22",)
    assert by_address[1024].of("complete_tx")[0].site.lines == ("/somewhere/ring.py:21",)


def test_named_and_cluster_barriers(ring_kernel):
    named = {b.name: b.arrivals for b in ring_kernel.barriers if b.kind == "bar"}
    assert named == {"bar 0": None, "bar 3": 128}
    (cluster,) = [b for b in ring_kernel.barriers if b.kind == "cluster"]
    assert [party.action for party in cluster.parties] == ["arrive", "wait"]


def test_launch_registers_and_copies(ring_kernel):
    launch = ring_kernel.launch
    assert (launch.block, launch.cluster, launch.grids) == ((256, 1, 1), None, ())
    assert (launch.static_smem_bytes, launch.dynamic_smem_bytes) == (24, None)
    (change,) = ring_kernel.register_changes
    assert (change.direction, change.registers) == ("inc", 232)
    (copy,) = ring_kernel.copies
    assert (copy.operation, copy.rank, copy.tensor_map, copy.multicast) == ("load", 2, None, False)


def test_the_map_has_variables_and_barriers(ring_kernel):
    assert [(r.start, r.bytes, r.what) for r in ring_kernel.regions] == [
        (0, 24, "variable counters"),
        (1024, 8, "mbarrier 0x400"),
        (1032, 8, "mbarrier 0x408"),
        (1040, 16, "mbarrier 0x410"),
    ]


def test_what_cannot_be_read_is_said_and_the_rest_is_explained():
    fence = "wgmma.fence.sync.aligned;"
    odd = RING.replace(fence, f"future.thing %zz9, {{1 2}};\n    ???;\n    {fence}")
    (kernel,) = explain(odd, assembler=False).kernels
    assert kernel.mmas[0].a.sbo == 1024
    line = line_of(odd, "future.thing")
    assert [f"PTX line {line + n}" in "\n".join(kernel.unread) for n in (0, 1)] == [True, True]
    assert "What could not be read" in explain(odd, assembler=False).text()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_cannot_be_read_is_said_of_its_kernel(count):
    """Of several kernels each has its own lines; where there is one, all lines are its own."""
    head, body = RING[: RING.index(".visible .entry")], RING[RING.index(".visible .entry") :]
    kernels = [body.replace("ring", f"ring{n}") for n in range(count)]
    kernels[-1] = kernels[-1].replace("wgmma.fence.sync.aligned;", "future.thing %zz9;\n    wgmma.fence.sync.aligned;")
    found = explain(head + "\n".join(kernels), assembler=False).kernels
    line = line_of(head + "\n".join(kernels), "future.thing")
    assert [len(kernel.unread) for kernel in found] == [0] * (count - 1) + [1]
    assert found[-1].unread[0].startswith(f"PTX line {line}: future.thing")


@pytest.mark.parametrize(
    "opcode",
    [
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd2, %rd3, %r1, 2, %p2, 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f64.f64.f64 {%f0, %f1, %f2, %f3}, %rd2, %rd3, %p2, 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 %rd2;",
        "wgmma.mma_async;",
    ],
)
def test_an_mma_of_another_form_is_named(opcode):
    text = RING.replace("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {", f"{opcode}\n    //")
    text = text.replace(".version 8.0", ".version 8.2")
    explained = explain(text, assembler=False)
    mma = explained.kernels[0].mmas[0]
    assert mma.opcode == opcode.split()[0].rstrip(";")
    assert mma.opcode in explained.text(None).replace("\n", "") or mma.shape_mnk


@given(cut=st.integers(0, len(RING)), length=st.integers(0, 200), put=st.text("{}[];,.%@$ \n+x1", max_size=6))
def test_no_damage_crashes_it(cut, length, put):
    damaged = RING[:cut] + put + RING[cut + length :]
    try:
        explained = explain(f"\n{damaged}", assembler=False)
    except ExplainError:
        return
    assert explained.text(80)
    assert explained.json()["kernels"]


@pytest.mark.parametrize("text", ["", "\n", "hello\nworld", HEAD, HEAD + ".func f() { ret; }"])
def test_no_kernel_is_an_error(text):
    with refuses(ExplainError):
        explain(text + "\n", assembler=False)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with refuses(ExplainError):
        explain(tmp_path / "nothing.ptx")


def test_other_objects_are_refused():
    with refuses(TypeError):
        explain(3)


def test_what_has_ptx_is_explained_by_its_name():
    class Compiled:
        ptx = RING
        __name__ = "mine"

    assert explain(Compiled(), assembler=False).source == "mine"


SHARED_OPERANDS = {
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;": ("store", (256,), 64),
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r2];": ("load", (256,), 64),
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r1], 64, [%r2];": (
        "to a peer",
        (256,),
        64,
    ),
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 64;": ("add", (256,), 64),
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r2], [%r1], %r3, [%r2];": (
        "add",
        (256,),
        None,
    ),
    "cp.async.bulk.prefetch.L2.global [%rd1], 64;": ("prefetch", (), None),
    "cp.async.bulk.prefetch.tensor.1d.L2.global [%rd1, {%r1}];": ("prefetch", (), None),
    "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r3}], [%r1];": ("store", (256,), None),
    "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%rd1, {%r3}], [%r1];": ("add", (256,), None),
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r3}], [%r2];": (
        "load",
        (256,),
        None,
    ),
}


def copy_of(statement):
    """Explain a copy whose operand in this CTA's shared memory is at 256, and its mbarrier at 1024."""
    text = f"""{HEAD}
.visible .entry bulk(.param .u64 p, .param .u32 n) {{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r3, [n]; mov.u32 %r1, 256; mov.u32 %r2, 1024;
    mbarrier.init.shared.b64 [%r2], 1;
    {statement}
    ret;
}}
"""
    (kernel,) = explain(text, assembler=False).kernels
    (copied,) = kernel.copies
    return kernel, copied


@pytest.mark.parametrize("statement", SHARED_OPERANDS)
def test_a_copy_has_its_address_in_this_ctas_shared_memory(statement):
    _, copied = copy_of(statement)
    assert (copied.operation, copied.shared_addresses, copied.bytes) == SHARED_OPERANDS[statement]


def facts_of(kernel, *copies):
    """Return the entries of copies in the section on copies, and the facts of each by name."""
    made = {section.title: section for section in sections(replace(kernel, copies=copies))}
    entries = made["Asynchronous copies"].entries
    return entries, [dict(entry.facts) for entry in entries]


@pytest.mark.parametrize(
    ("statement", "title", "facts"),
    [
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r2];",
            "bulk load, plain bytes",
            {"bytes": "64", "shared memory": "0x100", "counted at": "mbarrier {}"},
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r3, [%r3];",
            "bulk load, plain bytes",
            {"bytes": UNKNOWN, "shared memory": "0x100", "counted at": UNKNOWN},
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 64;",
            "bulk store, plain bytes",
            {"bytes": "64", "shared memory": UNKNOWN},
        ),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 64;", "bulk prefetch, plain bytes", {}),
        (
            "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r3}], [%r1];",
            "TMA store, tensor of rank 1",
            {"tensor map": UNKNOWN, "shared memory": "0x100"},
        ),
    ],
)
def test_a_copy_is_described_by_facts_that_it_has(statement, title, facts):
    kernel, copied = copy_of(statement)
    (entry,), (told,) = facts_of(kernel, copied)
    assert entry.title == title
    assert told.pop("at")
    assert told.pop("count") == "1 instruction"
    names = [barrier.name for barrier in kernel.barriers]
    assert told == {name: text.format(*names) for name, text in facts.items()}


def test_boxes_of_one_form_are_drawn_once_and_in_full_on_the_page():
    kernel, copied = copy_of("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r3}], [%r1];")
    boxes = [((64, 8), "SW128"), ((64, 8), "SW128"), ((64, 16), "SW128"), ((64, 8), "INTER")]
    drawn = [
        replace(copied, rank=2, issued=times, tensor_maps=(TensorMap("f16", (64, 64), (128,), box, swizzle=swizzle),))
        for times, (box, swizzle) in enumerate(boxes)
    ]
    entries, told = facts_of(kernel, *drawn)
    # Rows of 64 elements are drawn, however many a box has: the third is like the first.
    assert [entry.picture is not None for entry in entries] == [True, False, False, True]
    assert all(entry.large is not None for entry in entries)
    counts = ["1 instruction, not reached", *(f"1 instruction, issued {n}" for n in ("1 time", "2 times", "3 times"))]
    assert [facts["count"] for facts in told] == counts
