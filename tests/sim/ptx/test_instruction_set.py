"""The table of instructions: its words are explained, and each instruction that runs, or is spelled, has a row."""

import pytest

from cutepy.sim.ptx import features
from cutepy.sim.ptx.instruction_set import CLASSES, EFFECTS, QUALITIES, ROWS, short_name, traits
from cutepy.sim.semantics import MEANINGS
from cutepy.sim.translate.emitter import provided, refused_modifier


def test_the_words_of_rows_are_those_that_are_explained():
    assert {effect for row in ROWS.values() for effect in row.effects} == set(EFFECTS)
    assert {quality for row in ROWS.values() for quality in row.qualities} == set(QUALITIES)
    assert {row.kind for row in ROWS.values()} | {"float", "integer"} == {*CLASSES, "arithmetic"}


@pytest.mark.parametrize(
    ("opcode", "barrier", "arrives"),
    [
        ("bar.sync", "named", False),
        ("barrier.cta.arrive.aligned", "named", True),
        ("bar.red.popc.u32", "named", False),
        ("bar.warp.sync", "of_warp", False),
        ("barrier.cluster.arrive.release", "cluster", True),
        ("barrier.cluster.wait.acquire", "cluster", False),
        ("mbarrier.arrive.expect_tx.shared::cta.b64", "mbarrier", True),
        ("mbarrier.try_wait.parity.shared::cta.b64", "mbarrier", False),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", "mbarrier", True),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64", "mbarrier", True),
        ("fence.proxy.async", "", False),
    ],
)
def test_barriers_of_opcodes(opcode, barrier, arrives):
    found = traits(opcode)
    assert (found.barrier, found.arrives) == (barrier, arrives)
    assert found.meets == (barrier in ("named", "of_warp", "cluster"))


@pytest.mark.parametrize(
    ("opcode", "is_atomic", "reads_memory", "writes"),
    [
        ("ld.acquire.gpu.global.u32", False, True, False),
        ("st.global.u32", False, False, True),
        ("atom.add.u32", True, True, True),
        ("red.add.u32", True, False, True),
        ("cp.async.bulk.commit_group", False, False, False),
        ("prefetch.global.L2", False, False, False),
        ("createpolicy.fractional.L2::evict_last.b64", False, False, False),
    ],
)
def test_accesses_of_opcodes(opcode, is_atomic, reads_memory, writes):
    found = traits(opcode)
    assert (found.is_atomic, found.reads_memory, bool(found.stores)) == (is_atomic, reads_memory, writes)


@pytest.mark.parametrize(
    ("opcode", "quality"),
    [
        ("mbarrier.try_wait.parity.shared::cta.b64", "polls"),
        ("mbarrier.test_wait.shared.b64", "polls"),
        ("setmaxnreg.inc.sync.aligned.u32", "polls"),
        ("mbarrier.arrive.shared.b64", None),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", None),
        ("cp.async.bulk.global.shared::cta.bulk_group", "issues"),
        ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group", "issues"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", "issues"),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32", "issues"),
        ("cp.async.bulk.commit_group", None),
        ("wgmma.wait_group.sync.aligned", None),
        ("cvta.to.shared.u64", "maps"),
        ("mapa.shared::cluster.u32", "maps"),
        ("mov.u32", None),
    ],
)
def test_qualities_of_opcodes(opcode, quality):
    found = traits(opcode)
    given = {"polls": found.polls, "issues": found.issues, "maps": found.maps, "of_thread": found.is_copy_of_thread}
    assert [name for name, has in given.items() if has] == [quality] * (quality is not None)


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        ("barrier.cluster.arrive.release.aligned", "barrier.cluster.arrive"),
        ("barrier.cluster.wait.acquire.aligned", "barrier.cluster.wait"),
        ("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64", "mbarrier.arrive.expect_tx"),
        ("mbarrier.arrive.release.cta.shared::cta.b64", "mbarrier.arrive"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", "cp.async.mbarrier.arrive"),
    ],
)
def test_names_of_instructions_lack_how_they_order_memory(opcode, name):
    assert short_name(opcode) == name


def test_cp_async_issues_a_copy_of_its_thread():
    for opcode in ("cp.async.ca.shared.global", "cp.async.cg.shared.global.L2::128B"):
        assert traits(opcode).issues
        assert traits(opcode).is_copy_of_thread


def test_each_instruction_has_a_row():
    assert [name for name in (*provided(), *MEANINGS) if not traits(name).is_known] == []


@pytest.mark.parametrize("name", sorted(MEANINGS))
def test_an_instruction_with_a_meaning_is_plain(name):
    assert traits(name).is_plain


@pytest.mark.parametrize(
    ("opcode", "loads", "stores"),
    [("ldmatrix.sync.aligned.m8n8.x4.b16", ("shared",), ()), ("something.new", ("generic",), ("generic",))],
)
def test_state_spaces_of_opcodes_that_name_none(opcode, loads, stores):
    assert (traits(opcode).loads, traits(opcode).stores) == (loads, stores)


@pytest.mark.parametrize(
    ("opcode", "part"),
    [
        ("add.sat.s32", None),
        ("add.sat.u32", "u32"),
        ("ld.global.b64", None),
        ("ld.global.b128", "b128"),
        ("mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64", None),
        ("mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64", "rz"),
        ("multimem.st.weak.b32", "multimem"),
    ],
)
def test_what_ptx_has_not_and_what_is_not_simulated_is_refused(opcode, part):
    assert refused_modifier(opcode) == part


def test_a_row_has_all_that_its_instruction_needs():
    """The table of features names special registers, refused instructions and modifiers of any instruction."""
    of_rows = {name.partition(".")[0] for name in ROWS}
    assert {first for first, _ in features.listed()} & of_rows == set()


@pytest.mark.parametrize(
    ("opcode", "version", "least"),
    [
        ("szext.wrap.s32", None, ((7, 6), "sm_70")),
        ("lop3.or.b32", None, ((8, 2), "sm_70")),
        ("mbarrier.arrive.expect_tx.shared::cta.b64", None, ((8, 0), "sm_90")),
        ("mbarrier.arrive.shared.b64._", None, ((7, 1), "sm_80")),
        ("cvt.rn.satfinite.e4m3x2.f32", None, ((8, 1), "sm_89")),
        ("cvt.rn.satfinite.e4m3x2.f32", (8, 0), ((7, 8), "sm_90")),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", None, ((8, 2), "sm_90a")),
        ("add.rn.f32", None, ((1, 0), "")),
        ("ld.global.L1::no_allocate.f32", None, ((7, 4), "sm_70")),
    ],
)
def test_needs_are_those_of_all_beginnings_and_of_modifiers(opcode, version, least):
    assert features.needs(opcode, version) == least
