"""Small kernels of some warps."""

from cutepy.frontends import load_ptx

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .shared .align 8 .b8 tile[512];"

RACE = """
mov.u32 %r5, tile; shl.b32 %r6, %r0, 2; add.u32 %r7, %r5, %r6; st.shared.u32 [%r7], %r0;
xor.b32 %r8, %r6, 128; add.u32 %r8, %r8, %r5; ld.shared.u32 %r9, [%r8];
cvt.u64.u32 %rd1, %r6; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r9;
"""


def module(body):
    """Load a kernel `k` of one pointer, %rd0; %r0 is the thread, %r1 its warp, %r2 its lane."""
    return load_ptx(
        f"{HEADER}.visible .entry k(.param .u64 x) {{ {REGISTERS}\nld.param.u64 %rd0, [x];\n"
        f"mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31;\n{body}\nret;\n}}"
    )
