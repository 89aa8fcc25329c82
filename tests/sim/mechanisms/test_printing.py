"""printf: numbers of all widths and signs, as C prints them."""

import numpy as np
import pytest

import cutepy


@pytest.mark.parametrize(
    ("conversion", "bits", "value", "expected"),
    [
        ("%d", 32, -2, "-2"),
        ("%u", 32, -2, "4294967294"),
        ("%x", 32, 0xDEADBEEF, "deadbeef"),
        ("%#X", 32, 0xBEEF, "0XBEEF"),
        ("%o", 32, -1, "37777777777"),
        ("%lld", 64, -3, "-3"),
        ("%llu", 64, -3, "18446744073709551613"),
        ("%lx", 64, 0x123456789ABCDEF0, "123456789abcdef0"),
        ("%p", 64, 0x7F00000000AA, "0x7f00000000aa"),
    ],
)
def test_whole_numbers(conversion, bits, value, expected):
    """After a smaller one, so that its place in the buffer is aligned."""
    text = f"%d {conversion}\n".encode() + b"\0"
    at = bits // 8
    module = cutepy.load_ptx(f""".version 8.7
    .target sm_90a
    .address_size 64
    .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
    .global .align 1 .b8 text[{len(text)}] = {{{", ".join(map(str, text))}}};
    .visible .entry k(.param .b{bits} x) {{ .reg .b{bits} %x; .reg .b64 %rd<5>; .local .align 8 .b8 buffer[16];
    ld.param.b{bits} %x, [x]; mov.u64 %rd1, buffer; cvta.local.u64 %rd2, %rd1; st.local.u32 [%rd1], 5;
    st.local.b{bits} [%rd1+{at}], %x; mov.u64 %rd3, text; cvta.global.u64 %rd4, %rd3;
    {{ .param .b64 f; st.param.b64 [f], %rd4; .param .b64 a; st.param.b64 [a], %rd2; .param .b32 r;
    call.uni (r), vprintf, (f, a); }} ret; }}""")
    launched = module.launch("k", 1, 1, (np.array(value % 2**bits, f"u{at}").tobytes(),))
    assert launched.printf == f"5 {expected}\n"
