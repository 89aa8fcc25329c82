"""Operand roles: the tables state them for each translated instruction; any other has every role."""

import pytest

from cutepy.sim.ptx.model import Address, Immediate, Instruction, Pair, Register, Vector
from cutepy.sim.translate.effects import control_operands


def registers(count, kind="b32"):
    return tuple(Register(f"%r{n}", kind, n) for n in range(count))


D, A, B, C, M = registers(5)
WIDE = Register("%rd9", "b64", 9)
P = Register("%p8", "pred", 8)


@pytest.mark.parametrize(
    ("opcode", "operands", "found"),
    [
        ("something.new", (D, A, Address(B)), [A, B]),
        ("add.u32", (D, A, B), []),
        ("shfl.sync.idx.b32", (Pair(D, P), A, B, C, M), [B, C, M]),
        ("vote.sync.any.pred", (P, P, M), [M]),
        ("redux.sync.add.u32", (D, A, M), [M]),
        ("elect.sync", (Pair(D, P), M), [M]),
        ("bar.sync", (A, B), [A, B]),
        ("bar.red.or.pred", (D, A, B, P), [A, B]),
        ("bar.red.or.pred", (D, A, P), [A]),
        ("mbarrier.arrive.expect_tx.shared.b64", (WIDE, Address(A), B), [A, B]),
        ("mbarrier.pending_count.b64", (D, WIDE), []),
        ("ld.shared.u32", (D, Address(A)), [A]),
        ("ld.global.L2::cache_hint.u32", (D, Address(A), WIDE), [A]),
        ("ld.u32", (D, Address(A)), [A]),
        ("atom.shared.cas.b32", (D, Address(A), B, C), [A]),
        (
            "cp.async.cg.shared.global",
            (Address(A), Address(WIDE), Immediate(16), B),
            [A, WIDE, B],
        ),
        (
            "cp.async.cg.shared.global",
            (Address(A), Address(WIDE), Immediate(16), P),
            [A, WIDE, P],
        ),
        ("cp.async.cg.shared.global", (Address(A), Address(B), Immediate(16), WIDE), [A, B]),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint",
            (Address(A), Address(WIDE), B, Address(C), M, WIDE),
            [A, WIDE, B, C, M],
        ),
        (
            "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group",
            (Address(WIDE, 0, (A,)), Address(B)),
            [WIDE, A, B],
        ),
        ("tensormap.replace.tile.rank.global.b1024.b32", (Address(WIDE), A), [WIDE, A]),
        ("tensormap.replace.tile.global_address.shared::cta.b1024.b64", (Address(A), WIDE), [A, WIDE]),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
            (Vector((D,)), Vector((A,)), WIDE, P),
            [WIDE, P],
        ),
        ("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32", (Vector((D,)), Address(A), B), [A, B]),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32", (Vector((D,)), Address(A), B), [A, B]),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32",
            (Address(A), B, Address(C)),
            [A, C],
        ),
        ("prefetch.tensormap", (Address(WIDE),), [WIDE]),
        ("call", (WIDE,), [WIDE]),
    ],
)
def test_what_operands_decide(opcode, operands, found):
    assert [one.register for one in control_operands(Instruction(0, opcode, operands))] == found
