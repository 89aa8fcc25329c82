"""Tensor copies with element strides; what is not simulated of them is refused."""

import numpy as np
import pytest

from cutepy.sim import DescriptorError
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


def test_a_store_with_element_strides_is_refused():
    data = aligned((7, 9, 64), "u2")
    with pytest.raises(DescriptorError, match=r"stores with element strides \(1, 2, 3\) are not simulated"):
        launch(STORE, [described(data, (32, 5, 4), element_strides=(1, 2, 3)), data], smem=4104, block=(1, 1, 1))


def test_interleaved_tensors_are_refused():
    data = aligned((7, 9, 64), "u2")
    with pytest.raises(DescriptorError, match="interleave 16B are not simulated"):
        launch(STORE, [described(data, (8, 5, 4), interleave="16B"), data], smem=4104, block=(1, 1, 1))
