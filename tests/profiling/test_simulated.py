"""Launches in the simulator, which are records without times."""

import numpy as np

import cutepy
from tests.profiling.fake_source import fake_source

PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 x) {
    .reg .b32 %r<3>; .reg .f32 %f<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    ld.global.f32 %f0, [%rd1];
    add.f32 %f0, %f0, %f0;
    st.global.f32 [%rd1], %f0;
    ret;
}"""


def test_simulated_launches_are_records():
    module, x = cutepy.load_ptx(PTX), np.ones(4, np.float32)
    module.launch("scale", grid=1, block=4, args=(x,))
    with cutepy.profile(source=fake_source()) as profile:
        with cutepy.scope("layer"):
            module.launch("scale", grid=1, block=4, args=(x,))
        module.launch("scale", grid=1, block=4, args=(x,))
    module.launch("scale", grid=1, block=4, args=(x,))
    recording = profile.recording
    assert [(r.name, recording.path(r.scope), r.block, r.simulated) for r in recording.records] == [
        ("scale", ("layer",), (4, 1, 1), True),
        ("scale", (), (4, 1, 1), True),
    ]
