"""Tensor maps that kernels change: each lane the one that it addresses."""

import numpy as np
import pytest

from cutepy.layouts.sm90 import TensorMap
from tests.sim.kernels.launching import launch
from tests.sim.test_opcodes_tma import aligned, tensor_map


def maps(count):
    """Give as many equal tensor maps, each in 128 aligned bytes."""
    raw = np.zeros(128 * count + 128, np.uint8)
    table = raw[-raw.ctypes.data % 128 :][: 128 * count].reshape(count, 128)
    table[...] = np.frombuffer(tensor_map(aligned((8, 56), "u2"), (32, 8)), np.uint8)
    return table


def extents(table):
    return [TensorMap.decode(row[:64].view("<u8").tolist()).dims[0] for row in table]


@pytest.mark.parametrize("lanes", [1, 3])
def test_lanes_change_maps_of_their_own(lanes):
    table = maps(4)
    body = """mov.u32 %r1, %tid.x; mad.lo.u32 %r3, %r1, 16, 64; mad.wide.u32 %rd2, %r1, 128, %rd0;
    tensormap.replace.tile.global_dim.global.b1024.b32 [%rd2], 0, %r3;"""
    launch(body, [table], block=(lanes, 1, 1))
    assert extents(table) == [64, 80, 96, 56][:lanes] + [56] * (4 - lanes)


@pytest.mark.parametrize("pitch", [0, 128])
def test_ctas_copy_maps_from_shared_memory(pitch):
    """Each to its own place, or all to one; the two warps of a CTA have maps of their own."""
    table = maps(4)
    words = "".join(f"ld.global.u32 %r4, [%rd0+{n}]; st.shared.u32 [%r2+{n}], %r4;" for n in range(0, 128, 4))
    body = f"""mov.u32 %r0, smem; mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5; mad.lo.u32 %r2, %r1, 128, %r0; {words}
    mov.u32 %r5, %ctaid.x; mad.lo.u32 %r3, %r1, 16, 64;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r2], 0, %r3; bar.sync 0;
    mad.lo.u32 %r6, %r5, 2, %r1; mad.wide.u32 %rd2, %r6, {pitch}, %rd0;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%r2], 128;"""
    launch(body, [table], block=(64, 1, 1), grid=(2, 1, 1), smem=1024)
    assert extents(table) in ([[64, 80, 64, 80]] if pitch else [[64, 56, 56, 56], [80, 56, 56, 56]])
