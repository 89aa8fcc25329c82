"""Certificates of what warps do to allocations of tensor memory, and of values that go through tensor memory."""

import pytest

from cutepy.layouts.sm100 import InstrDescriptor, SmemDescriptor
from tests.sim.sanitize.certificate.programs import examined

pytestmark = pytest.mark.filterwarnings("ignore::cutepy.sim.AdvisoryWarning")

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; setp.eq.u32 %p2, %r3, 1;
ld.param.u64 %rd1, [p0]; mov.u32 %r9, 0;"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1+{}], 32; bar.warp.sync -1; "
ALLOC += "ld.shared.u32 %r{}, [%r1+{}];"
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r{}, 32;"
GIVE_UP = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


def by_warps(first, second):
    """Let two warps do something each: `|` stands for a barrier of both."""
    one, two = (x.replace("|", "bar.sync 0;") for x in (first, second))
    return f"{START}\n@%p2 bra TWO;\n{one}\nbra END;\nTWO:\n{two}\nEND:"


MINE, OTHER = ALLOC.format(16, 10, 16), ALLOC.format(32, 11, 32)
FREED, OTHER_FREED = FREE.format(10), FREE.format(11)
SECOND, SECOND_FREED = ALLOC.format(48, 12, 48), FREE.format(12)
ORDERED = {
    "one after the other": by_warps(f"{MINE}\n|\n|\n{FREED}", f"|\n{OTHER}\n|\n{OTHER_FREED}"),
    "again, after the first is freed": by_warps(f"{MINE}\n{FREED}\n|", f"|\n{OTHER}\n{OTHER_FREED}"),
    "two warps free": by_warps(f"{MINE}\n{SECOND}\n|\n{FREED}", f"|\nld.shared.u32 %r12, [%r1+48];\n{SECOND_FREED}"),
    "given up after all": by_warps(f"{MINE}\n|\n{FREED}", f"|\n{GIVE_UP}"),
}  # fmt: skip
UNORDERED = {
    "two warps allocate": by_warps(f"{MINE}\n{FREED}", f"{OTHER}\n{OTHER_FREED}"),
    "one allocates, and another one frees": by_warps(f"{MINE}\n|\n{FREED}", f"|\n{OTHER}\n{OTHER_FREED}"),
    "given up by another warp": by_warps(f"{MINE}\n{FREED}", GIVE_UP),
    "given up before the last": by_warps(f"{MINE}\n|\n{SECOND}\n{FREED}\n{SECOND_FREED}", f"|\n{GIVE_UP}"),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERED)
def test_allocations_in_one_order_are_certified(name):
    certificate, hazards, error = examined(ORDERED[name], block=64, target="sm_100a")
    assert (error, [str(hazard) for hazard in hazards], certificate.reasons) == (None, [], ())
    assert any("tcgen05.alloc gives the columns" in one for one in certificate.assumptions)


@pytest.mark.parametrize("name", UNORDERED)
def test_allocations_in_no_order_are_not(name):
    """Some end in an error as they run here, the others as they run elsewhere."""
    certificate, hazards, error = examined(UNORDERED[name], block=64, target="sm_100a")
    if error is None:
        told = ["unordered-write"] if name.startswith("given up") else []
        assert [hazard.kind for hazard in hazards] == told
        assert "may come in either order" in " ".join(certificate.reasons)
    else:
        assert "may allocate no more" in str(error)


STORE = "mov.u32 %r8, {}; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {{%r9}}; tcgen05.wait::st.sync.aligned;"


@pytest.mark.parametrize(("wait", "is_certified"), [("|", True), ("", False)])
def test_columns_are_used_after_they_are_allocated(wait, is_certified):
    """By an address that the kernel knows without being told: the one that the simulator gives."""
    text = by_warps(f"{wait}\n{STORE.format(480)}\nbar.sync 1;", f"{MINE}\n{wait}\nbar.sync 1;\n{FREED}")
    certificate, hazards, error = examined(text, block=64, target="sm_100a")
    assert error is None
    assert certificate.is_certified == is_certified
    if not is_certified:
        assert [hazard.kind for hazard in hazards] == ["unordered-write"]
        assert "may not be allocated yet" in str(hazards)


THROUGH = {
    "a store": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r24], {%r20}; tcgen05.wait::st.sync.aligned;",
    "a copy": "@%p3 st.shared.u32 [%r1+4096], %r20; fence.proxy.async;"
    "@%p3 tcgen05.cp.cta_group::1.128x128b [%r24], %rd5; {COMMIT}",
    "a product": "@%p3 st.shared.u32 [%r1+4096], %r20; fence.proxy.async; setp.ne.u32 %p5, %r2, %r2;"
    "@%p3 tcgen05.mma.cta_group::1.kind::f16 [%r24], %rd5, %rd5, {WORD}, %p5; {COMMIT}",
}
COMMIT = """@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r1];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0; @!%p4 bra WAIT;"""
USE = """tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r21}, [%r24]; tcgen05.wait::ld.sync.aligned;
setp.gt.u32 %p6, %r21, 5; @%p6 bra LAST; st.global.u32 [%rd1+4], %r2;
LAST:"""


@pytest.mark.parametrize("name", THROUGH)
@pytest.mark.parametrize(
    "source", ["atom.global.add.u32 %r20, [%rd1], 1;", "mov.u32 %r20, 1;"], ids=["chance", "fixed"]
)
def test_values_are_followed_through_tensor_memory(name, source):
    """The result of an atomic must reach no branch; lane 0 alone takes it.

    The address is the one that the simulator gives: by shared memory all that is read there is followed.
    """
    word = int(InstrDescriptor("f16", 128, 16))
    path = THROUGH[name].replace("{COMMIT}", COMMIT).replace("{WORD}", "%r22")
    text = f"""{START}
    setp.eq.u32 %p3, %r2, 0; mov.u32 %r20, 0; mov.u64 %rd6, 8192; mov.u32 %r22, {word}; mov.u32 %r24, 480;
    @%p3 mbarrier.init.shared.b64 [%r1], 1; @%p3 fence.mbarrier_init.release.cluster;
    @%p3 st.bulk.weak.shared::cta [%r1+4096], %rd6, 0; bar.sync 0; {"@%p3" if "atom" in source else ""} {source}
    add.u32 %r23, %r1, 4096; shr.u32 %r23, %r23, 4; cvt.u64.u32 %rd5, %r23;
    add.u64 %rd5, %rd5, {int(SmemDescriptor(0, 16, 256, layout_type=6))};
    {MINE}
    {path}
    {USE}
    {FREED}"""
    certificate, hazards, error = examined(text, block=32, target="sm_100a")
    assert (error, [str(hazard) for hazard in hazards]) == (None, [])
    assert any("atomic" in one and "a branch" in one for one in certificate.reasons) == ("atom" in source)
