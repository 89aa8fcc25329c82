"""State spaces that instructions read and write, for each translated one."""

import pytest

from cutepy.sim.ptx.model import Address, FrameSlot, Immediate, Instruction
from cutepy.sim.translate.effects import may_be_same, state_spaces


@pytest.mark.parametrize(
    ("opcode", "found"),
    [
        ("ld.global.nc.u32", (("global",), ())),
        ("ld.u32", (("generic",), ())),
        ("ldmatrix.sync.aligned.m8n8.x4.b16", (("shared",), ())),
        ("st.async.mbarrier::complete_tx::bytes.shared::cluster.u32", ((), ("shared",))),
        ("red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.add.u32", (("shared",), ("shared",))),
        ("cp.async.ca.shared.global", (("global",), ("shared",))),
        ("cp.async.bulk.commit_group", ((), ())),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", ((), ())),
        ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", (("shared",), ("global",))),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", (("shared", "global"), ("global",))),
        ("cp.async.bulk.prefetch.L2.global", ((), ())),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", (("shared",), ())),
        ("wgmma.commit_group.sync.aligned", ((), ())),
        ("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32", ((), ("shared",))),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", ((), ())),
        ("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic", (("shared",), ("global",))),
        ("barrier.red.or.pred", (("barrier",), ("barrier",))),
        ("bar.sync", ((), ())),
        ("something.new", (("generic",), ("generic",))),
    ],
)
def test_state_spaces(opcode, found):
    assert state_spaces(Instruction(0, opcode, ())) == found


def test_arguments_of_calls_are_no_parameters_of_the_kernel():
    address = Address(FrameSlot(None, 8))
    found = state_spaces(Instruction(0, "st.param.b64", (address, Immediate(1))))
    assert found == ((), ("frame",))
    assert not may_be_same("frame", "param")
