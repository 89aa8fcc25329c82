"""What operands decide: of each instruction that is translated the tables say it, and of others all is taken to."""

import pytest

from cutepy.sim.ptx.model import Address, Immediate, Instruction, Pair, Register, Vector
from cutepy.sim.translate.operand_roles import control_operands, is_relevant


def registers(count, kind="b32"):
    return tuple(Register(f"%r{n}", kind, n) for n in range(count))


D, A, B, C, M = registers(5)
WIDE = Register("%rd9", "b64", 9)
P = Register("%p8", "pred", 8)


@pytest.mark.parametrize(
    ("opcode", "operands", "found"),
    [
        ("something.new", (D, A, Address(B)), [(A, False), (B, False)]),
        ("add.u32", (D, A, B), []),
        ("shfl.sync.idx.b32", (Pair(D, P), A, B, C, M), [(B, False), (C, False), (M, False)]),
        ("vote.sync.any.pred", (P, P, M), [(M, False)]),
        ("redux.sync.add.u32", (D, A, M), [(M, False)]),
        ("elect.sync", (Pair(D, P), M), [(M, False)]),
        ("bar.sync", (A, B), [(A, False), (B, False)]),
        ("bar.red.or.pred", (D, A, B, P), [(A, False), (B, False)]),
        ("bar.red.or.pred", (D, A, P), [(A, False)]),
        ("mbarrier.arrive.expect_tx.shared.b64", (WIDE, Address(A), B), [(A, False), (B, False)]),
        ("mbarrier.pending_count.b64", (D, WIDE), []),
        ("ld.shared.u32", (D, Address(A)), [(A, False)]),
        ("ld.global.L2::cache_hint.u32", (D, Address(A), WIDE), [(A, True)]),
        ("ld.u32", (D, Address(A)), [(A, False)]),
        ("atom.shared.cas.b32", (D, Address(A), B, C), [(A, False)]),
        (
            "cp.async.cg.shared.global",
            (Address(A), Address(WIDE), Immediate(16), B),
            [(A, False), (WIDE, True), (B, False)],
        ),
        (
            "cp.async.cg.shared.global",
            (Address(A), Address(WIDE), Immediate(16), P),
            [(A, False), (WIDE, True), (P, True)],
        ),
        ("cp.async.cg.shared.global", (Address(A), Address(B), Immediate(16), WIDE), [(A, False), (B, True)]),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint",
            (Address(A), Address(WIDE), B, Address(C), M, WIDE),
            [(A, False), (WIDE, True), (B, False), (C, False), (M, False)],
        ),
        (
            "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group",
            (Address(WIDE, 0, (A,)), Address(B)),
            [(WIDE, False), (A, True), (B, False)],
        ),
        ("tensormap.replace.tile.rank.global.b1024.b32", (Address(WIDE), A), [(WIDE, False), (A, False)]),
        ("tensormap.replace.tile.global_address.shared::cta.b1024.b64", (Address(A), WIDE), [(A, False), (WIDE, True)]),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
            (Vector((D,)), Vector((A,)), WIDE, P),
            [(WIDE, False), (P, False)],
        ),
        ("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32", (Vector((D,)), Address(A), B), [(A, False), (B, False)]),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32", (Vector((D,)), Address(A), B), [(A, True), (B, True)]),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32",
            (Address(A), B, Address(C)),
            [(A, False), (C, False)],
        ),
        ("prefetch.tensormap", (Address(WIDE),), [(WIDE, False)]),
        ("call", (WIDE,), [(WIDE, False)]),
    ],
)
def test_what_operands_decide(opcode, operands, found):
    assert [(one.register, one.is_elsewhere) for one in control_operands(Instruction(0, opcode, operands))] == found


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("st.global.u32", False),
        ("st.u32", True),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32", True),
        ("movmatrix.sync.aligned.m8n8.trans.b16", True),
        ("selp.b32", False),
        ("bra.uni", False),
        ("trap", True),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32", True),
        ("prefetch.global.L2", False),
        ("prefetch.tensormap", True),
        ("something.new", True),
    ],
)
def test_who_executes_what_matters(opcode, expected):
    assert is_relevant(Instruction(0, opcode, ())) == expected
