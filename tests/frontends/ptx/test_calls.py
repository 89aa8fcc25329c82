"""Calls of functions: what is passed, recursion, pointers, lanes that part, the stack, and the system's functions."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import cutepy
from cutepy import load_ptx
from cutepy.frontends.cuda_runtime import CudaLibrary
from cutepy.sim import MemoryAccessError, SimulationError, TrapError, UnknownInstructionError
from cutepy.sim.mechanisms.heap import HEAP_BYTES, Space
from cutepy.sim.ptx.parser import PtxSyntaxError
from tests.messages import refuses

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_ADD = """.func (.param .b32 sum) add(.param .b32 x, .param .b32 y) {
    .reg .b32 %r<4>; ld.param.b32 %r1, [x]; ld.param.b32 %r2, [y]; add.s32 %r3, %r1, %r2;
    st.param.b32 [sum+0], %r3; ret; }"""
_TIMES = """.func (.param .b32 product) times(.param .b32 x, .param .b32 y) {
    .reg .b32 %r<4>; ld.param.b32 %r1, [x]; ld.param.b32 %r2, [y]; mul.lo.s32 %r3, %r1, %r2;
    st.param.b32 [product], %r3; ret; }"""
_FIBONACCI = """.func (.param .b32 result) fib(.param .b32 n) {
    .reg .b32 %r<8>; .reg .pred %p; ld.param.u32 %r1, [n]; setp.lt.s32 %p, %r1, 2; @%p bra DONE;
    { .param .b32 a; .param .b32 b; sub.s32 %r2, %r1, 1; st.param.b32 [a], %r2; call (b), fib, (a);
      ld.param.b32 %r3, [b]; }
    { .param .b32 a; .param .b32 b; sub.s32 %r2, %r1, 2; st.param.b32 [a], %r2; call (b), fib, (a);
      ld.param.b32 %r4, [b]; }
    add.s32 %r1, %r3, %r4;
DONE: st.param.b32 [result], %r1; ret; }"""


def kernel(body, outside="", before="", parameters=".param .u64 out"):
    """A kernel whose %t is the thread and %to the address of its element of out."""
    return load_ptx(f"""{_HEAD}{outside}
    .visible .entry k({parameters}) {{ .reg .b32 %t, %r<16>; .reg .b64 %to, %rd<16>; .reg .pred %p<4>; {before}
    mov.u32 %t, %tid.x; ld.param.u64 %to, [out]; mad.wide.u32 %to, %t, 4, %to; {body} }}""")


def run(module, threads=64, more=(), out=None):
    out = np.zeros(threads, np.int32) if out is None else out
    module.launch("k", 1, threads, (out, *more))
    return out


_STORE = "st.global.u32 [%to], %r1; ret;"


def call(name, *values, result="%r1", more=""):
    """A call with values of 32 bits."""
    passed = "".join(f".param .b32 p{n}; st.param.b32 [p{n}+0], {v}; " for n, v in enumerate(values))
    names = ", ".join(f"p{n}" for n in range(len(values)))
    return f"{{ {passed} .param .b32 q; call (q), {name}, ({names}){more}; ld.param.b32 {result}, [q+0]; }}"


def test_arguments_and_results():
    found = run(kernel(call("add", "%t", 5) + call("add", "%r1", "%t") + _STORE, _ADD))
    np.testing.assert_array_equal(found, 2 * np.arange(64) + 5)


def test_recursion():
    """Lanes go to different depths, and each frame has its own registers and memory."""
    found = run(kernel("rem.u32 %r2, %t, 12;" + call("fib", "%r2") + _STORE, _FIBONACCI))
    numbers = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    np.testing.assert_array_equal(found, [numbers[t % 12] for t in range(64)])


@pytest.mark.parametrize("alias", ["", ".alias product, times;"])
def test_pointers(alias):
    """A table of functions in memory; of 64 lanes each calls one of two."""
    table = f"{_ADD} {_TIMES} .global .u64 table[2] = {{add, {'product' if alias else 'times'}}}; {alias}"
    declared = ".func (.param .b32 r) product(.param .b32 x, .param .b32 y); " if alias else ""
    body = f"""and.b32 %r2, %t, 1; mov.u64 %rd1, table; mad.wide.u32 %rd1, %r2, 8, %rd1; ld.global.u64 %rd2, [%rd1];
    proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
    {call("%rd2", "%t", 7, more=", proto")} {_STORE}"""
    t = np.arange(64)
    np.testing.assert_array_equal(run(kernel(body, declared + table)), np.where(t % 2, t * 7, t + 7))


def test_pointers_outlive_a_launch():
    outside = f"{_ADD} {_TIMES} .global .u64 kept;"
    module = load_ptx(f"""{_HEAD}{outside}
    .visible .entry keep() {{ .reg .b64 %rd<2>; mov.u64 %rd1, times; st.global.u64 [kept], %rd1; ret; }}
    .visible .entry k(.param .u64 out) {{ .reg .b32 %t, %r<4>; .reg .b64 %to, %rd<4>;
    mov.u32 %t, %tid.x; ld.param.u64 %to, [out]; mad.wide.u32 %to, %t, 4, %to;
    FORM: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
    ld.global.u64 %rd1, [kept]; {call("%rd1", "%t", 3, more=", FORM")} {_STORE} }}""")
    module.launch("keep", 1, 1)
    np.testing.assert_array_equal(run(module), 3 * np.arange(64))


_PAIR = """.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 pair[16], .param .b64 by) {
    .reg .b32 %r<2>; .reg .b64 %rd<4>; ld.param.b32 %r1, [pair]; ld.param.b64 %rd1, [pair+8];
    ld.param.b64 %rd2, [by]; add.u64 %rd1, %rd1, %rd2; st.param.b64 [out], %rd1; st.param.b32 [out+8], %r1;
    st.param.b32 [out+12], %r1; ret; }"""


def test_structs_by_value():
    body = """cvt.u64.u32 %rd1, %t; { .param .align 8 .b8 p[16]; .param .b64 b; .param .align 8 .b8 q[16];
    st.param.v2.b32 [p], {%t, %t}; st.param.b64 [p+8], 100; st.param.b64 [b], %rd1; call.uni (q), swap, (p, b);
    ld.param.b32 %r1, [q]; ld.param.v2.b32 {%r2, %r3}, [q+8]; } add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;"""
    np.testing.assert_array_equal(run(kernel(body + _STORE, _PAIR)), 100 + 3 * np.arange(64))


_IN_REGISTERS = """.func (.reg .b32 q, .reg .b32 r) divide(.reg .b32 x, .reg .b32 y) {
    .reg .pred %p; setp.eq.u32 %p, y, 0; mov.u32 q, 0; mov.u32 r, 0; @%p ret; div.u32 q, x, y; rem.u32 r, x, y;
    ret; }"""


def test_parameters_in_registers():
    """Several results, numbers as arguments, and a guarded return."""
    body = "rem.u32 %r5, %t, 5; call (%r2, %r3), divide, (%t, %r5); mad.lo.u32 %r1, %r2, 100, %r3;"
    body += "call (%r2, %r4), divide, (%r1, 10); add.u32 %r1, %r2, %r4;"
    expected = []
    for t in range(64):
        q, r = divmod(t, t % 5) if t % 5 else (0, 0)
        expected.append(sum(divmod(100 * q + r, 10)))
    np.testing.assert_array_equal(run(kernel(body + _STORE, _IN_REGISTERS)), expected)


_LEAVES = """.func leaves(.param .b32 n) { .reg .b32 %r<3>; .reg .pred %p; ld.param.b32 %r1, [n];
    and.b32 %r2, %r1, 3; setp.eq.u32 %p, %r2, 3; @%p exit; ret; }"""


def test_lanes_may_end_in_a_function_and_others_go_on_together():
    """After the call the rest of each warp votes, so it has come together."""
    body = """{ .param .b32 p; st.param.b32 [p], %t; call leaves, (p); } activemask.b32 %r1;"""
    found = run(kernel(body + _STORE, _LEAVES))
    t = np.arange(64)
    np.testing.assert_array_equal(found.view(np.uint32), np.where(t % 4 == 3, 0, 0x77777777))


_PARTS = """.func (.param .b32 out) part(.param .b32 n) { .reg .b32 %r<6>; .reg .pred %p, %q; ld.param.b32 %r1, [n];
    and.b32 %r2, %r1, 1; setp.eq.u32 %p, %r2, 1; mov.u32 %r3, 0; @%p bra ODD; add.u32 %r3, %r1, 10; bra JOIN;
    ODD: and.b32 %r2, %r1, 2; setp.eq.u32 %q, %r2, 2; @%q ret; add.u32 %r3, %r1, 20;
    JOIN: shfl.sync.idx.b32 %r4, %r3, 0, 31, 0x77777777; st.param.b32 [out], %r4; ret; }"""


def test_lanes_that_part_in_a_function_meet_where_it_returns():
    """Some return early, and the rest shuffles; all shuffle afterwards."""
    body = call("part", "%t") + "shfl.sync.idx.b32 %r2, %t, 31, 31, -1; add.u32 %r1, %r1, %r2;"
    found = run(kernel(body + _STORE, _PARTS))
    t = np.arange(64)
    early = t % 4 == 3
    np.testing.assert_array_equal(found[~early], (t // 32 * 32 + 10 + t // 32 * 32 + 31)[~early])


_WAIT = """.global .u32 flag; .func (.param .b32 out) wait(.param .b32 n) { .reg .b32 %r<4>; .reg .pred %p;
    ld.param.b32 %r1, [n]; st.param.b32 [out], %r1; setp.lt.u32 %p, %r1, 48; @%p ret;
    LOOP: ld.volatile.global.u32 %r2, [flag]; setp.eq.u32 %p, %r2, 0; @%p bra LOOP;
    add.u32 %r1, %r1, %r2; st.param.b32 [out], %r1; ret; }"""


def test_a_warp_returns_while_lanes_of_another_are_in_the_function():
    """They wait for what the first does afterwards; the lanes that came back before them wait for them."""
    body = (
        call("wait", "%t")
        + """setp.eq.u32 %p1, %t, 0; @%p1 st.volatile.global.u32 [flag], 100;
    shfl.sync.idx.b32 %r2, %r1, 31, 31, -1; mad.lo.u32 %r1, %r2, 1000, %r1;"""
    )
    module = kernel(body + _STORE, _WAIT)
    t = np.arange(64)
    values = np.where(t < 48, t, t + 100)
    np.testing.assert_array_equal(run(module), values + 1000 * values[t // 32 * 32 + 31])


def test_calls_behind_a_guard_and_among_parted_lanes():
    body = f"""setp.lt.u32 %p1, %t, 20; mov.u32 %r1, 7; @!%p1 bra END; {call("fib", 6)} {call("add", "%r1", "%t")}
    END: setp.gt.u32 %p2, %t, 50; {{ .param .b32 a; .param .b32 b; .param .b32 q; st.param.b32 [a], %r1;
    st.param.b32 [b], 1000; @%p2 call (q), add, (a, b); @%p2 ld.param.b32 %r1, [q]; }}"""
    t = np.arange(64)
    expected = np.where(t < 20, 8 + t, 7) + np.where(t > 50, 1000, 0)
    np.testing.assert_array_equal(run(kernel(body + _STORE, _ADD + _FIBONACCI)), expected)


_ARRAY = """.func (.param .b32 out) total(.param .b32 n, .param .b64 extra) {
    .local .align 4 .b8 mine[64]; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p;
    ld.param.b32 %r1, [n]; ld.param.b64 %rd3, [extra]; mov.u32 %r2, 0; mov.u64 %rd1, mine;
    FILL: mad.wide.u32 %rd2, %r2, 4, %rd1; st.local.u32 [%rd2], %r2; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1;
    @%p bra FILL; setp.lt.u32 %p, %r1, 3; ld.local.u32 %r4, [%rd2]; @%p bra DONE;
    { .param .b32 a; .param .b64 b; .param .b32 q; sub.u32 %r3, %r1, 1; st.param.b32 [a], %r3;
      cvta.local.u64 %rd4, %rd2; st.param.b64 [b], %rd4; call (q), total, (a, b); ld.param.b32 %r5, [q]; }
    add.u32 %r4, %r4, %r5; ld.local.u32 %r6, [mine+4]; add.u32 %r4, %r4, %r6;
    DONE: setp.eq.u64 %p, %rd3, 0; @%p bra LAST; ld.u32 %r7, [%rd3]; add.u32 %r4, %r4, %r7;
    LAST: st.param.b32 [out], %r4; ret; }"""


def test_frames_have_memory_of_their_own():
    """Each depth fills an array, and reads the caller's by its address and its own after the call."""

    def total(n, extra):
        last = max(n, 1) - 1
        return last + (total(n - 1, last) + 1 if n >= 3 else 0) + extra

    body = """and.b32 %r2, %t, 7; { .param .b32 a; .param .b64 b; .param .b32 q; st.param.b32 [a], %r2;
    st.param.b64 [b], 0; call (q), total, (a, b); ld.param.b32 %r1, [q]; }"""
    found = run(kernel(body + _STORE, _ARRAY))
    np.testing.assert_array_equal(found, [total(t % 8, 0) for t in range(64)])


def test_the_stack():
    """Memory of a size that only the thread knows, given back, beside a frame and below another."""
    body = f""".local .align 4 .b8 first[8]; st.local.u32 [first], 5; stacksave.u64 %rd1;
    and.b32 %r2, %t, 3; mad.lo.u32 %r3, %r2, 20, 4; cvt.u64.u32 %rd2, %r3; alloca.u64 %rd3, %rd2, 32;
    cvt.u64.u32 %rd5, %r3; add.u64 %rd6, %rd3, %rd5; st.local.u32 [%rd6+-4], %t; {call("fib", 7)}
    ld.local.u32 %r4, [%rd6+-4]; ld.local.u32 %r5, [first]; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    and.b64 %rd7, %rd3, 31; cvt.u32.u64 %r6, %rd7; add.u32 %r1, %r1, %r6;
    stackrestore.u64 %rd1; alloca.u64 %rd4, 16; sub.u64 %rd7, %rd3, %rd4; cvt.u32.u64 %r6, %rd7;
    and.b32 %r6, %r6, 0xffffffe0; add.u32 %r1, %r1, %r6;"""
    np.testing.assert_array_equal(run(kernel(body + _STORE, _FIBONACCI)), 13 + 5 + np.arange(64))


def test_the_stack_overflows():
    deep = """.func down(.param .b32 n) { .local .b8 mine[4096]; .reg .b32 %r<2>; ld.param.b32 %r1, [n];
    { .param .b32 a; st.param.b32 [a], %r1; call down, (a); } ret; }"""
    body = "{ .param .b32 a; st.param.b32 [a], 1; call down, (a); } ret;"
    with refuses(MemoryAccessError):
        run(kernel(body, deep), 1)


_SYSTEM = """.extern .func (.param .b64 p) malloc(.param .b64 size); .extern .func free(.param .b64 p);
.extern .func (.param .b32 n) vprintf(.param .b64 text, .param .b64 values);"""
_MALLOC = (
    """{ .param .b64 s; .param .b64 q; st.param.b64 [s], %rd1; call.uni (q), malloc, (s); ld.param.b64 %rd2, [q]; }"""
)
_FREE = "{ .param .b64 f; st.param.b64 [f], %rd2; call.uni free, (f); }"


def test_malloc_and_free():
    """Each lane has memory of its own, which a later launch still finds and gives back."""
    module = load_ptx(f"""{_HEAD}{_SYSTEM} .global .u64 kept[64];
    .visible .entry take() {{ .reg .b32 %t; .reg .b64 %rd<4>; mov.u32 %t, %tid.x; cvt.u64.u32 %rd1, %t;
    add.u64 %rd1, %rd1, 8; {_MALLOC} st.u32 [%rd2], %t; mov.u64 %rd3, kept; mad.wide.u32 %rd3, %t, 8, %rd3;
    st.global.u64 [%rd3], %rd2; ret; }}
    .visible .entry k(.param .u64 out) {{ .reg .b32 %t, %r<2>; .reg .b64 %to, %rd<4>; mov.u32 %t, %tid.x;
    ld.param.u64 %to, [out]; mad.wide.u32 %to, %t, 4, %to; mov.u64 %rd3, kept; mad.wide.u32 %rd3, %t, 8, %rd3;
    ld.global.u64 %rd2, [%rd3]; ld.u32 %r1, [%rd2]; {_FREE} {_STORE} }}""")
    module.launch("take", 1, 64)
    pointers = module.variable("kept", "u8").view(np.uint64).copy()
    assert (pointers % 16 == 0).all()
    assert len(set(pointers.tolist())) == 64
    np.testing.assert_array_equal(run(module), np.arange(64))
    with refuses(MemoryAccessError):
        run(module)


@pytest.mark.parametrize(
    ("size", "count"), [(HEAP_BYTES // 2, 2), (HEAP_BYTES, 1), (HEAP_BYTES + 1, 0), (1 << 63, 0), (0, 0)]
)
def test_malloc_gives_null_where_there_is_no_more(size, count):
    body = f"mov.u64 %rd1, {size}; {_MALLOC} setp.ne.u64 %p1, %rd2, 0; selp.u32 %r1, 1, 0, %p1;"
    assert run(kernel(body + _STORE, _SYSTEM)).tolist() == [1] * count + [0] * (64 - count)


@pytest.mark.parametrize("space", ["param", "reg"])
@pytest.mark.parametrize("given", ["b32", "u32", "s32", "f32"])
@pytest.mark.parametrize("formal", ["b32", "u32", "s32", "f32"])
def test_a_call_passes_bits_as_any_type_and_no_float_as_an_integer(space, given, formal):
    outside = f".func f(.{space} .{formal} x) {{ ret; }}"
    written = "st.param.b32 [q], %r1" if space == "param" else "mov.b32 q, %r1"
    body = f"{{ .{space} .{given} q; {written}; call f, (q); }} ret;"
    if "b32" in (given, formal) or (given == "f32") == (formal == "f32"):
        kernel(body, outside)
    else:
        with pytest.raises(PtxSyntaxError):
            kernel(body, outside)


@pytest.mark.parametrize("free", [_FREE + _FREE, "add.u64 %rd2, %rd2, 16;" + _FREE])
def test_free_of_what_is_not_allocated(free):
    with refuses(MemoryAccessError):
        run(kernel(f"mov.u64 %rd1, 64; {_MALLOC} {free} ret;", _SYSTEM), 1)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 900), max_size=60), st.randoms())
def test_the_heap_gives_memory_that_nobody_else_has(sizes, random):
    space, held = Space(8192), []
    for size in sizes:
        if held and random.random() < 0.5:
            start, length = held.pop(random.randrange(len(held)))
            assert space.give(start) == length
        start = space.take(size)
        if start is None:
            continue
        assert start % 16 == 0
        assert all(start + size <= other or other + length <= start for other, length in held)
        held.append((start, size))
    for start, _ in held:
        space.give(start)
    assert space.take(8192) is not None


def test_printf_gives_the_number_of_its_arguments():
    text = ".global .b8 text[6] = {37, 100, 32, 37, 100, 0};"
    body = """.local .align 8 .b8 values[8]; mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, values;
    st.local.v2.u32 [%rd2], {%t, 8}; cvta.local.u64 %rd2, %rd2; { .param .b64 a; .param .b64 b; .param .b32 q;
    st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; call.uni (q), vprintf, (a, b); ld.param.b32 %r1, [q]; }"""
    module, out = kernel(body + _STORE, _SYSTEM + text), np.zeros(2, np.int32)
    assert module.launch("k", 1, 2, (out,)).printf == "0 81 8"
    assert out.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("outside", "body", "error"),
    [
        (".extern .func other();", "call other; ret;", UnknownInstructionError),
        ("", "P: .callprototype _; mov.u64 %rd1, 64; call %rd1, P; ret;", SimulationError),
        (
            _ADD,
            """P: .callprototype _ (.param .b32 _); { .param .b32 a; mov.u64 %rd1, add; call %rd1, (a), P; } ret;""",
            SimulationError,
        ),
        (".func f() { trap; }", "call f; ret;", TrapError),
    ],
    ids=["extern", "pointer", "arguments", "trap"],
)
def test_wrong_calls(outside, body, error):
    """They are refused where they are reached, and only there."""
    with refuses(error):
        run(kernel(body, outside), 1)
    run(kernel(f"bra END; {body} END: ret;", outside), 1)


@pytest.mark.parametrize(
    ("outside", "body"),
    [
        (".alias f, g;", "ret;"),
        (".extern .func f(); .func g(); .alias g, f;", "ret;"),
        ("", "call (%r1), f, (5); ret;"),
    ],
)
def test_unreadable_calls(outside, body):
    with refuses(PtxSyntaxError):
        kernel(body, outside)


def test_a_grid_synchronises_by_its_workspace():
    """As cooperative_groups.h does it: an atomic at the address that %envreg1 and %envreg2 hold, or null."""
    body = """mov.u32 %r1, %envreg2; mov.u32 %r2, %envreg1; mov.b64 %rd1, {%r1, %r2}; setp.eq.u64 %p1, %rd1, 0;
    @%p1 bra NONE; atom.add.release.gpu.u32 %r3, [%rd1+4], 1;
    WAIT: ld.acquire.gpu.u32 %r1, [%rd1+4]; setp.ne.u32 %p1, %r1, 4; @%p1 bra WAIT; bra STORE; NONE: mov.u32 %r1, 0;
    STORE: mov.u32 %t, %ctaid.x; ld.param.u64 %to, [out]; mad.wide.u32 %to, %t, 4, %to;"""
    module, out = kernel(body + _STORE), np.zeros(4, np.uint32)
    for _ in range(2):
        module.launch("k", 4, 1, (out,), cooperative=True)
        assert out.tolist() == [4] * 4
    module.launch("k", 4, 1, (out,))
    assert out.tolist() == [0] * 4


def test_breakpoints_stop_in_functions():
    files = '.file 1 "device.py"'
    function = _ADD.replace("add.s32 %r3", ".loc 1 7 0\nadd.s32 %r3")
    seen = []
    with cutepy.simulate() as simulation:
        simulation.breakpoint("device.py:7", lambda step: seen.append(step.registers["%r2"].max()))
        run(kernel(call("add", "%t", 5) + _STORE, f"{files}\n{function}"))
    assert seen == [5]


def test_host_code_that_is_no_library(tmp_path):
    with pytest.raises(OSError, match=r"none\.so"):
        CudaLibrary(tmp_path / "none.so", _HEAD)


def test_lanes_that_end_in_a_function_called_in_a_branch_are_not_awaited_after_it():
    """Of the lanes of the branch some end within the call; the others meet those of the other branch after it."""
    body = """setp.ge.u32 %p0, %t, 16; @%p0 bra MEET; { .param .b32 p; st.param.b32 [p], %t; call leaves, (p); }
    MEET: activemask.b32 %r1;"""
    found = run(kernel(body + _STORE, _LEAVES), threads=32)
    t = np.arange(32)
    np.testing.assert_array_equal(found.view(np.uint32), np.where((t % 4 == 3) & (t < 16), 0, 0xFFFF7777))


def test_accumulators_are_the_same_after_a_call():
    """A group that calls has its accumulators where MMAs keep them; it returns in parts, and they are in registers."""
    body = """mov.u32 %r8, smem; shl.b32 %r9, %t, 5; add.u32 %r9, %r9, %r8; mov.u32 %r1, 0x3c003c00;
    st.shared.v4.b32 [%r9], {%r1, %r1, %r1, %r1}; st.shared.v4.b32 [%r9+16], {%r1, %r1, %r1, %r1}; bar.sync 0;
    fence.proxy.async.shared::cta; mov.b64 %rd1, 0x1000080000; setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    { .param .b32 p; st.param.b32 [p], %t; call leaves, (p); } cvt.rni.s32.f32 %r1, %f2;"""
    module = kernel(body + _STORE, _LEAVES, ".reg .f32 %f<4>; .shared .align 1024 .b8 smem[4096];")
    t = np.arange(128)
    np.testing.assert_array_equal(run(module, threads=128), np.where(t % 4 == 3, 0, 16))


@pytest.mark.parametrize("text", ["call;", "call (%r1);"])
def test_calls_of_nothing(text):
    with refuses(PtxSyntaxError):
        run(kernel(f"{text} ret;"), 1)


_UP = "\n".join(f".func (.reg .u32 r) up{n}(.reg .u32 x) {{ add.u32 r, x, {n}; ret; }}" for n in (1, 2))


@pytest.mark.parametrize("form", [".callprototype (.reg .u32 _) _ (.reg .u32 _)", ".calltargets up1, up2"])
def test_numbers_passed_to_a_function_by_its_address(form):
    """Their type is what the directive says of the functions."""
    body = f"""FORM: {form}; setp.lt.u32 %p1, %t, 32; mov.u64 %rd1, up1; @%p1 mov.u64 %rd1, up2;
    call (%r1), %rd1, (40), FORM; {_STORE}"""
    found = run(kernel(body, _UP))
    np.testing.assert_array_equal(found, np.where(np.arange(64) < 32, 42, 41))
