"""Registers that an instruction reads and writes."""

import pytest

from cutepy.sim.ptx import parse_module
from cutepy.sim.translate.effects import read, written
from tests.sim.kernels.launching import ptx_module

_D = "{%r1, %r2, %r3, %r4}"


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("add.u32 %r1, %r2, %r3;", "%r2 %r3", "%r1"),
        ("@%p1 add.u32 %r1, %r2, %r3;", "%r1 %r2 %r3 %p1", "%r1"),
        ("ld.global.v2.u32 {%r1, %r2}, [%rd1];", "%rd1", "%r1 %r2"),
        ("st.global.v2.u32 [%rd1], {%r1, %r2};", "%rd1 %r1 %r2", ""),
        ("setp.lt.u32 %p1|%p2, %r1, %r2;", "%r1 %r2", "%p1 %p2"),
        ("bar.sync %r1, %r2;", "%r1 %r2", ""),
        ("bar.red.popc.u32 %r1, %r2, %p1;", "%r2 %p1", "%r1"),
        ("bar.warp.sync %r1;", "%r1", ""),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", "%r1", "%rd1"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "", ""),
        (f"wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {_D}, [%rd1], %r9;", "%rd1 %r9", "%r1 %r2 %r3 %r4"),
        (f"wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd1], {_D}, %r9;", "%rd1 %r1 %r2 %r3 %r4 %r9", ""),
        ("wgmma.wait_group.sync.aligned 0;", "", ""),
    ],
)
def test_registers(text, reads, writes):
    first, _ = parse_module(ptx_module(text, 0)).functions["k"].instructions
    assert [r.name for r in read(first)] == reads.split()
    assert [r.name for r in written(first)] == writes.split()
