"""Instructions of sm_100 and later are taken and refused, target by target, as ptxas 13.0 does."""

import re

import pytest

from cutepy.layouts.sm100.tmem_copy import SHAPES
from cutepy.sim.ptx import forms
from cutepy.sim.ptx.instruction_set import ROWS
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.ptx.sm100_statements import TARGETS, module, recorded


def takes(statement, target):
    try:
        parse_module(module(statement, target))
    except PtxSyntaxError as error:
        assert error.line == 6
        return False
    return True


@pytest.mark.parametrize("target", TARGETS)
def test_each_statement_is_taken_for_the_targets_for_which_ptxas_takes_it(target):
    wrong = [line for targets, line in recorded() if takes(line, target) != (target in targets)]
    assert wrong == []


@pytest.mark.parametrize(
    "statement",
    [
        "tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], 13;",
        "tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], 15;",
        "tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%d0], 4;",
        "st.async.release.gpu.global.b32 [%d0], %r1;",
        "st.async.mmio.release.sys.global.b64 [%d0], %d1;",
        "st.async.release.sys.b32 [%d0], %r1;",
        "red.async.release.gpu.global.add.u32 [%d0], %r1;",
        "red.async.relaxed.sys.add.s64 [%d0], %d1;",
    ],
)
def test_what_ptxas_takes_and_no_document_settles_is_refused_by_name(statement):
    with refuses(PtxSyntaxError):
        parse_module(module(statement, "sm_103a"))


@pytest.mark.parametrize(
    "statement",
    [
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 48;",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 48;",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r0], 3;",
        "tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%d0], 4;",
    ],
)
def test_a_number_that_ptxas_refuses_is_named(statement):
    with refuses(PtxSyntaxError):
        parse_module(module(statement, "sm_100a"))


@pytest.mark.parametrize("operation", ["ld", "st"])
def test_shapes_that_reach_tensor_memory_are_those_of_the_layouts(operation):
    """A row without a layout could be read, and not executed; a layout without a row could not be read."""
    rows = [(name, *row.ways) for name, row in ROWS.items() if name.startswith(f"tcgen05.{operation}")]
    assert {shape for row in rows for text in row for shape in re.findall(r"\b\d+x\d+b(?:x2)?\b", text)} == set(SHAPES)


def test_a_shape_is_read_by_its_layout(monkeypatch):
    """With more registers a thread, a shape takes more; without a layout the place is named."""
    load = "tcgen05.ld.sync.aligned.16x256b.x{}.b32 {{{}}}, [%r100];"
    few, many, some = (
        load.format(count, ", ".join(f"%r{n}" for n in range(registers)))
        for count, registers in ((1, 8), (2, 16), (4, 16))
    )
    wide = SHAPES["16x256b"]
    assert not takes(few, "sm_100a")
    wider = SHAPES | {"16x256b": wide._replace(registers=((4, 2), wide.registers[1]))}
    monkeypatch.setattr(forms, "SHAPES", wider)
    assert takes(many, "sm_100a")
    monkeypatch.setattr(forms, "SHAPES", {name: shape for name, shape in SHAPES.items() if name != "16x256b"})
    with refuses(PtxSyntaxError):
        parse_module(module(some, "sm_100a"))
