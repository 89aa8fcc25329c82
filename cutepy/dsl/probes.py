"""Probes: a warp writes its clock and a tag into a buffer whose address is compiled in (traced).

The first active lane of a warp writes. The buffer also holds the number of events of the warp, so that a probe takes a
load that hits L1 and two stores, and no atomic operation. Each SM has a clock of its own. The first event of a warp,
and every sixteenth, also records the global timer, which relates the clocks of SMs. The part of the buffer for a warp
holds the events of one launch, the first that writes there.

References
----------
PTX ISA, "Special Registers": %clock64, %globaltimer, %smid, %lanemask_lt; "activemask".
"""

from __future__ import annotations

from typing import Any

from cutepy.dsl.traced_names import at_the_caller
from cutepy.dsl.version import require
from cutepy.runtime.timeline_state import EVENT_BYTES, HEADER_BYTES, TimelineBuffer

_llvm = require("cutlass._mlir.dialects.llvm", "inline_asm", "AsmDialect")

_PROBE = """{{ {remark}
.reg .pred %lead, %first, %same, %often, %fits;
.reg .b32 %lanes, %mask, %cta, %warp, %x, %n, %lo, %hi, %sm, %grid, %of;
.reg .b64 %at, %now, %timer, %to, %id;
mov.u64 %now, %clock64;
activemask.b32 %lanes;
mov.u32 %mask, %lanemask_lt;
and.b32 %mask, %mask, %lanes;
setp.eq.u32 %lead, %mask, 0;
mov.u32 %cta, %ctaid.z;
mov.u32 %x, %nctaid.y;
mov.u32 %n, %ctaid.y;
mad.lo.u32 %cta, %cta, %x, %n;
mov.u32 %x, %nctaid.x;
mov.u32 %n, %ctaid.x;
mad.lo.u32 %cta, %cta, %x, %n;
setp.lt.and.u32 %lead, %cta, {ctas}, %lead;
mov.u32 %warp, %tid.z;
mov.u32 %x, %ntid.y;
mov.u32 %n, %tid.y;
mad.lo.u32 %warp, %warp, %x, %n;
mov.u32 %x, %ntid.x;
mov.u32 %n, %tid.x;
mad.lo.u32 %warp, %warp, %x, %n;
shr.u32 %warp, %warp, 5;
mad.lo.u32 %warp, %cta, {warps}, %warp;
mul.wide.u32 %at, %warp, {part_bytes};
add.u64 %at, %at, {address};
mov.u64 %id, %gridid;
cvt.u32.u64 %grid, %id;
mov.u32 %n, 0;
mov.u32 %of, %grid;
@%lead ld.relaxed.cta.global.u32 %n, [%at];
setp.eq.and.u32 %first, %n, 0, %lead;
@%lead ld.relaxed.cta.global.u32 %of, [%at+4];
@%first mov.u32 %of, %grid;
setp.eq.and.u32 %lead, %of, %grid, %lead;
and.b32 %x, %n, {sampled};
setp.eq.and.u32 %often, %x, 0, %lead;
@%often mov.u64 %timer, %globaltimer;
@%first mov.u32 %sm, %smid;
@%first st.relaxed.cta.global.u32 [%at+4], %grid;
@%first st.relaxed.cta.global.u32 [%at+8], %sm;
@%first st.relaxed.cta.global.u64 [%at+16], %timer;
@%first st.relaxed.cta.global.u64 [%at+24], %now;
@%often st.relaxed.cta.global.u64 [%at+32], %timer;
@%often st.relaxed.cta.global.u64 [%at+40], %now;
setp.lt.and.u32 %fits, %n, {events}, %lead;
mad.wide.u32 %to, %n, {event_bytes}, %at;
mov.b64 {{%lo, %hi}}, %now;
@%fits st.global.v4.b32 [%to+{header}], {{%lo, %hi, $1, $0}};
add.u32 %n, %n, 1;
@%lead st.relaxed.cta.global.u32 [%at], %n;
}}"""
_SAMPLED = 15
"""Mask of an event's number: the global timer is read beside the clock where none of its bits is set."""


@at_the_caller  # type: ignore[untyped-decorator]
def probe(buffer: TimelineBuffer, tag: int, argument: Any, *, loc: Any = None, ip: Any = None) -> None:  # noqa: ANN401
    """Write this warp's clock, a tag and a number.

    Parameters
    ----------
    buffer : TimelineBuffer
    tag : int
    argument : Int32 or int
    """
    import cutlass

    text = _PROBE.format(
        ctas=buffer.ctas,
        warps=buffer.warps,
        part_bytes=buffer.part_bytes,
        address=buffer.address,
        remark=buffer.remark,
        events=buffer.events,
        header=HEADER_BYTES,
        event_bytes=EVENT_BYTES,
        sampled=_SAMPLED,
    )
    operands = [cutlass.Int32(each).ir_value(loc=loc, ip=ip) for each in (argument, tag)]
    _llvm.inline_asm(
        None,
        operands,
        text,
        "r,r,~{memory}",
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=_llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
