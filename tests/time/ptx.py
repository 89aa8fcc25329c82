"""Text of kernels that time themselves: a loop of `n` turns between two readings of the clocks."""

from __future__ import annotations

from collections.abc import Iterable

HEADER = """.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
RECORD_WORDS = 8
"""Words of 64 bits that a warp leaves: clock before and after, globaltimer before and after, SM, three of its own."""

_ENTRY = """.visible .entry timed(.param .u64 out_, .param .u64 data_, .param .u32 n_{parameters})
.maxntid {threads}
{{
.reg .pred %p<64>; .reg .b16 %h<16>; .reg .b32 %r<400>; .reg .b64 %rd<100>; .reg .pred %sunk, %more, %first;
.reg .b32 %n, %i, %thread, %warp, %lane, %cta, %ctas, %threads, %base, %t<8>;
.reg .b64 %out, %data, %c0, %c1, %g0, %g1, %w<8>;
ld.param.u64 %out, [out_]; ld.param.u64 %data, [data_]; ld.param.u32 %n, [n_];
cvta.to.global.u64 %out, %out; cvta.to.global.u64 %data, %data;
mov.u32 %thread, %tid.x; mov.u32 %cta, %ctaid.x; mov.u32 %ctas, %nctaid.x; mov.u32 %threads, %ntid.x;
shr.u32 %warp, %thread, 5; and.b32 %lane, %thread, 31; mov.u32 %base, smem;
setp.eq.u32 %sunk, %n, 0xFFFFFFFF; setp.eq.u32 %first, %thread, 0;
mov.u64 %w5, 0; mov.u64 %w6, 0; mov.u64 %w7, 0;
{setup}
bar.warp.sync -1;
bar.sync 0;
mov.u64 %g0, %globaltimer; mov.u64 %c0, %clock64;
{skip}{loop}
{over}mov.u64 %c1, %clock64; mov.u64 %g1, %globaltimer;
{finish}
shr.u32 %t0, %threads, 5; mad.lo.u32 %t0, %cta, %t0, %warp; mul.wide.u32 %w0, %t0, 64; add.u64 %w0, %out, %w0;
mov.u32 %t1, %smid; cvt.u64.u32 %w1, %t1; setp.eq.u32 %more, %lane, 0;
@%more st.global.v2.u64 [%w0], {{%c0, %c1}};
@%more st.global.v2.u64 [%w0+16], {{%g0, %g1}};
@%more st.global.v2.u64 [%w0+32], {{%w1, %w5}};
@%more st.global.v2.u64 [%w0+48], {{%w6, %w7}};
ret;
}}
"""
_LOOP = """mov.u32 %i, 0;
setp.eq.u32 %more, %n, 0;
@%more bra OVER;
TURN:
{body}
add.u32 %i, %i, 1; setp.lt.u32 %more, %i, %n;
@%more bra TURN;
OVER:
{drain}"""


def timed(
    body: str,
    *,
    setup: str = "",
    drain: str = "",
    finish: str = "",
    threads: int = 1024,
    parameters: str = "",
    idle: str = "",
    kept: Iterable[str] = (),
) -> str:
    """Return the PTX of a kernel `timed` that runs `body` n times between two readings of the clocks.

    Parameters
    ----------
    body, setup, drain, finish : str
        Statements: of a turn; before the clocks; after the last turn, which are timed; after the clocks. ``%i`` counts
        turns, ``%thread``, ``%warp``, ``%lane``, ``%cta``, ``%ctas``, ``%threads`` say where, ``%base`` is shared
        memory; ``%r``, ``%rd``, ``%h``, ``%p`` are free; ``%w5`` to ``%w7`` go into the warp's record.
    threads : int
        No CTA has more.
    parameters : str
        Declarations after those of out, data and n.
    idle : str
        Predicate of threads that skip all turns, of none by default.
    kept : iterable of str
        Registers of 32 bits whose values must be computed.
    """
    kept_alive = "".join(f"@%sunk st.global.b32 [%out], {register};\n" for register in kept)
    parameters = f", {parameters}" if parameters else ""
    loop = _LOOP.format(body=body, drain=drain)
    finish = f"{finish}\n{kept_alive}"
    return HEADER + _ENTRY.format(
        setup=setup, loop=loop, finish=finish, threads=threads, parameters=parameters,
        skip=f"@{idle} bra IDLE;\n" if idle else "", over="IDLE:\n" if idle else "",
    )  # fmt: skip


def loads(count: int) -> str:
    """Return statements that set %r0 to %r(count - 1) to words of `data`, different in each lane."""
    lines = ["mul.wide.u32 %rd0, %lane, 4; add.u64 %rd0, %data, %rd0;"]
    lines += [f"ld.global.u32 %r{index}, [%rd0+{128 * index}];" for index in range(count)]
    return "\n".join(lines)


def wait(barrier: str, parity: str, label: str, scope: str = "") -> str:
    """Return a loop that waits for the phase of a parity of an mbarrier in this CTA's shared memory."""
    return f"""{label}:
mbarrier.try_wait.parity{scope}.shared::cta.b64 %p60, [{barrier}], {parity};
@!%p60 bra {label};"""
