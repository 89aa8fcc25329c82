"""Spills at the PTX's lines: outside loops, in a loop, and in a loop with MMAs."""

import pytest
from hypothesis import given, strategies as st

from cutepy.binaries import spills as of_spills
from cutepy.binaries.ptxas import AssemblyError, assemble, find_ptxas
from cutepy.binaries.sass import DisassemblyError, find_nvdisasm

VALUES = 48
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry other() { ret; }
.visible .entry k(.param .u64 x, .param .u32 n) .maxntid 128 .minnctapersm 1 .maxnreg REGISTERS
{
    .reg .pred %p; .reg .b32 %i; .reg .b32 %n; .reg .b64 %x; .reg .f32 %f<100>; .reg .b64 %d;
    ld.param.u64 %x, [x]; ld.param.u32 %n, [n]; mov.u32 %i, 0; mov.b64 %d, %x;
"""


def crowded(where, registers=40):
    """Write a kernel that keeps more values than it has registers: over a loop, or within it, with MMAs or without."""
    load = [f"    ld.volatile.global.f32 %f{n}, [%x+{4 * n}];" for n in range(VALUES)]
    store = [f"    st.volatile.global.f32 [%x+{4 * n}], %f{n};" for n in range(VALUES)]
    sums = ", ".join(f"%f{n}" for n in range(64, 96))
    mma = [
        "    wgmma.fence.sync.aligned;",
        f"    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{sums}}}, %d, %d, 1, 1, 1, 0, 0;",
        "    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
    ]
    begin, end = ["LOOP:"], ["    add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra LOOP;"]
    zeros = [f"    mov.f32 %f{n}, 0f00000000;" for n in range(64, 96)]
    kept = [f"    st.volatile.global.f32 [%x+{4 * n}], %f{n};" for n in range(64, 96)]
    body = {
        "before a loop": [*load, *store, *begin, *end],
        "in a loop": [*begin, *load, *store, *end],
        "in a main loop": [*zeros, *begin, *load, *mma, *store, *end, *kept],
    }[where]
    text = HEAD.replace("REGISTERS", str(registers)) + "\n".join(body) + "\n    ret;\n}\n"
    return text, text.splitlines()


@pytest.fixture(autouse=True)
def _tools():
    try:
        find_ptxas(), find_nvdisasm()
    except (AssemblyError, DisassemblyError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("where", "registers", "loop", "mmas"),
    [("before a loop", 32, False, False), ("in a loop", 32, True, False), ("in a main loop", 72, True, True)],
)
def test_spills_are_counted_where_they_are(where, registers, loop, mmas):
    text, lines = crowded(where, registers)
    assembly = assemble(text)
    found = assembly.spills("k")
    (resources,) = (one for one in assembly.resources if one.name == "k")
    assert sum(spill.stored_bytes for spill in found) == resources.spill_store_bytes > 0
    assert sum(spill.loaded_bytes for spill in found) == resources.spill_load_bytes > 0
    assert {spill.is_in_loop for spill in found} == {loop}
    assert {spill.is_with_mmas for spill in found} == {mmas}
    assert all("global" in lines[spill.line - 1] or "wgmma" in lines[spill.line - 1] for spill in found)
    assert assembly.spills("other") == ()


@pytest.mark.parametrize(
    ("opcode", "stored", "loaded"),
    [
        *(("STL", 4, 0), ("STL.U8", 1, 0), ("STL.S16", 2, 0), ("STL.64", 8, 0), ("STL.128", 16, 0)),
        *(("LDL", 0, 4), ("LDL.LU", 0, 4), ("LDL.S8", 0, 1), ("LDL.U16", 0, 2), ("LDL.LU.64", 0, 8)),
    ],
)
def test_a_spill_has_the_bytes_of_its_opcode(monkeypatch, opcode, stored, loaded):
    code = (
        f'.section .text.k,"ax"\n//## File ".nv_debug_ptx_txt", line 7\n/*0000*/ {opcode} [R1], R2 (*"SpillRefill"*) ;'
    )
    monkeypatch.setattr(of_spills, "print_code", lambda *_: code)
    assert of_spills.spills(b"", "k") == (of_spills.Spill(7, stored, loaded, False, False),)
    assert of_spills.spills(b"", "j") == ()


def test_without_a_disassembler_nobody_can_tell(monkeypatch):
    assembly = assemble(crowded("in a loop", 32)[0])
    monkeypatch.setattr(
        "cutepy.binaries.sass.find_nvdisasm", lambda *_: (_ for _ in ()).throw(DisassemblyError("none"))
    )
    assert assembly.spills("k") is None


@given(st.lists(st.lists(st.integers(0, 11), max_size=3).map(tuple), min_size=12, max_size=12))
def test_a_loop_is_what_leads_there_and_back(following):
    def reached(start):
        found, waiting = set(), [*following[start]]
        while waiting:
            n = waiting.pop()
            if n not in found:
                found.add(n)
                waiting += following[n]
        return found

    after = [reached(n) for n in range(len(following))]
    expected = {n: frozenset(m for m in after[n] if n in after[m]) for n in range(len(following))}
    assert of_spills._loops(following) == {n: loop for n, loop in expected.items() if loop}
