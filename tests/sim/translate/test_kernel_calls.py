"""Calls of a kernel: names that instructions call, and none that only comments and paths mention."""

import pytest

from cutepy.sim.translate import Kernel

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b64 result) malloc (.param .b64 size);
.func helper() { ret; }
"""
CALL = "{ .param .b64 a; .param .b64 r; st.param.b64 [a], %rd0; call.uni (r), malloc, (a); ld.param.b64 %rd1, [r]; }"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (f"mov.u64 %rd0, 16; {CALL}", {"malloc"}),
        ("call.uni helper, ();", {"helper"}),
        ("// no malloc, no vprintf\n", set()),
    ],
)
def test_calls_are_those_of_instructions(body, names):
    kernel = Kernel(f"{HEAD}.entry k() {{ .reg .b64 %rd<2>; {body} ret; }}", "k")
    assert {name for name in ("malloc", "vprintf", "helper") if kernel.calls(name)} == names
    assert kernel.calls("malloc", "helper") == bool(names)
