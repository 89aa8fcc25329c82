"""Tensor copies with element strides; what is not simulated of them is refused."""

import numpy as np
import pytest

from cutepy.layouts.sm90.arch import SWIZZLE_BITS, span_bytes
from cutepy.sim import DescriptorError, MemoryAccessError
from tests.messages import refuses
from tests.sim.test_opcodes_tma import aligned, swizzled, tensor_map

from .launching import launch

LOAD = """
mov.u32 %r1, %tid.x; mov.u32 %r0, smem; add.u32 %r9, %r0, 4096; setp.ne.u32 %p1, %r1, 0;
@%p1 bra END;
mbarrier.init.shared.b64 [%r9], 1;
mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r9], {size_bytes};
mov.u32 %r4, {x}; mov.u32 %r5, {y}; mov.u32 %r6, {z};
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {{%r4, %r5, %r6}}], [%r9];
WAIT: mbarrier.try_wait.shared.b64 %p2, [%r9], %rd5;
@!%p2 bra WAIT;
END:
"""
STORE = """
mov.u32 %r0, smem; mov.u32 %r4, 0;
cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd0, {%r4, %r4, %r4}], [%r0];
"""


def described(data, *args, **options):
    descriptor = aligned((128,), "u1")
    descriptor[:] = np.frombuffer(tensor_map(data, *args, **options), np.uint8)
    return descriptor


@pytest.mark.parametrize("at", [(0, 0, 0), (16, 1, 1), (-16, -2, -3), (48, 7, 5), (0, 5, -1)])
@pytest.mark.parametrize("swizzle", ["INTER", "SW64"])
def test_every_nth_element_is_taken(at, swizzle):
    data = aligned((7, 9, 64), "u2", seed=1)
    descriptor = described(data, (32, 5, 4), element_strides=(1, 2, 3), swizzle=swizzle)
    expected = np.zeros((2, 3, 32), np.uint16)
    for k in range(2):
        for j in range(3):
            z, y = at[2] + 3 * k, at[1] + 2 * j
            for i in range(32):
                x = at[0] + i
                if 0 <= z < 7 and 0 <= y < 9 and 0 <= x < 64:
                    expected[k, j, i] = data[z, y, x]
    x, y, z = at
    run = launch(LOAD.format(x=x, y=y, z=z, size_bytes=expected.nbytes), [descriptor, data], smem=4104)
    np.testing.assert_array_equal(run.smem()[: expected.nbytes], swizzled(expected, swizzle))


SHIFTED_LOAD = """
mov.u32 %r0, smem; add.u32 %r9, %r0, 8192; add.u32 %r8, %r0, {offset}; mov.u32 %r4, 0;
mbarrier.init.shared.b64 [%r9], 1;
mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r9], {size_bytes};
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd0, {{%r4, %r4}}], [%r9];
WAIT: mbarrier.try_wait.shared.b64 %p2, [%r9], %rd5;
@!%p2 bra WAIT;
"""
SHIFTED_STORE = """
mov.u32 %r0, smem; add.u32 %r8, %r0, {offset}; mov.u32 %r4, 0; mov.u32 %r5, 0;
FILL: shr.u32 %r6, %r5, 4; add.u32 %r7, %r0, %r5; st.shared.u8 [%r7], %r6;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 4096; @%p1 bra FILL;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {{%r4, %r4}}], [%r8];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
"""
SWIZZLES = ("INTER", "SW32", "SW64", "SW128")


def units_at(offset, swizzle):
    """Return where the 16-byte units of a box of 16 rows lie, as on an H200: by the bits of their addresses."""
    unit = np.arange(span_bytes(swizzle)) + offset // 16
    return unit ^ (unit >> 3 & (1 << SWIZZLE_BITS[swizzle]) - 1)


@pytest.mark.parametrize("offset", [0, 128, 256, 512, 640])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_a_box_is_swizzled_by_address_wherever_it_starts(swizzle, offset):
    """Measured on an H200, 2026-11-22, one process a case: these offsets from a multiple of 1024 bytes all work."""
    span = span_bytes(swizzle)
    data = aligned((16, span + 16), "u1")[:, :span]
    data[...] = np.arange(16 * span).reshape(16, span) // 16
    descriptor = described(data, (span, 16), swizzle=swizzle)
    run = launch(
        SHIFTED_LOAD.format(offset=offset, size_bytes=data.size), [descriptor, data], smem=8200, block=(1, 1, 1)
    )
    found = run.smem()[: 4096 // 16 * 16].reshape(-1, 16)[units_at(offset, swizzle), 0]
    np.testing.assert_array_equal(found, np.arange(span))
    data[...] = 255
    launch(SHIFTED_STORE.format(offset=offset), [descriptor, data], smem=8200, block=(1, 1, 1))
    np.testing.assert_array_equal(data.reshape(-1, 16)[:, 0], units_at(offset, swizzle))


@pytest.mark.parametrize("offset", [16, 32, 64, 144])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_a_box_at_no_multiple_of_128_bytes_is_a_fault(swizzle, offset):
    """Measured on an H200, 2026-11-22: loads and stores end with cudaErrorMisalignedAddress, whatever the swizzle."""
    span = span_bytes(swizzle)
    data = aligned((16, span + 16), "u1")[:, :span]
    descriptor = described(data, (span, 16), swizzle=swizzle)
    for body in (SHIFTED_LOAD.format(offset=offset, size_bytes=data.size), SHIFTED_STORE.format(offset=offset)):
        with refuses(MemoryAccessError):
            launch(body, [descriptor, data], smem=8200, block=(1, 1, 1))


def test_a_stride_that_a_tensor_map_can_not_hold_is_not_put_into_it():
    data = aligned((7, 9, 64), "u2")
    for stride in (120, 1 << 40):
        body = f"mov.b64 %rd5, {stride}; tensormap.replace.tile.global_stride.global.b1024.b64 [%rd0], 0, %rd5;"
        with refuses(DescriptorError):
            launch(body, [described(data, (32, 5, 4)), data], block=(1, 1, 1))
    body = "mov.b64 %rd5, 144; tensormap.replace.tile.global_stride.global.b1024.b64 [%rd0], 0, %rd5;"
    launch(body, [described(data, (32, 5, 4)), data], block=(1, 1, 1))
