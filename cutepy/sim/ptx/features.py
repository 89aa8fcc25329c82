"""The version of the PTX ISA and the target that instructions need, by their rows, and modifiers of any instruction.

References
----------
PTX ISA, "Instruction Set": "PTX ISA Notes" and "Target ISA Notes" of each instruction; what ptxas 13.0 says of opcodes
in modules of older versions and targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from cutepy.sim.ptx.header import Version, parsed_target, shortfall
from cutepy.sim.ptx.instruction_set import ROWS

_TABLE = """
3.0 sm_30: vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4
3.0 sm_20: %pm4 %pm5 %pm6 %pm7
3.1 sm_30: %globaltimer %globaltimer_lo %globaltimer_hi
4.0 sm_50: %pm0_64 %pm1_64 %pm2_64 %pm3_64 %pm4_64 %pm5_64 %pm6_64 %pm7_64
4.2 sm_20: %dynamic_smem_size %total_smem_size
4.3 sm_20: *.cc.u64 *.cc.s64
5.0 sm_20: %clock_hi
6.0 sm_70: *.weak
7.0 sm_80: *.tf32 *.relu
7.2 sm_86: *.xorsign
7.4 sm_70: *.L1::no_allocate *.L1::evict_last *.L1::evict_first *.L1::evict_normal *.L1::evict_unchanged
7.4 sm_75: *.L2::64B *.L2::128B
7.4 sm_80: *.L2::cache_hint *.L2::256B
7.6 sm_80: %reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap %reserved_smem_offset_0
7.6 sm_80: %reserved_smem_offset_1
7.8 sm_20: *.shared::cta
7.8 sm_90: *.cluster *.shared::cluster %clusterid %nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank
7.8 sm_90: %cluster_nctarank %is_explicit_cluster
8.0 sm_50: %current_graph_exec
8.1 sm_90: *.oob %aggr_smem_size
8.3 sm_20: *.param::func
8.3 sm_70: *.param::entry
8.6 sm_90: *.sync_restrict::shared::cluster *.sync_restrict::shared::cta
8.6 sm_100f/sm_101f/sm_110f: *.cta_group::1 *.cta_group::2 *.tile::gather4.cta_group::1 *.tile::scatter4
8.6 sm_100f/sm_101f/sm_110f/sm_120f: *.e2m1x2 *.e2m3x2 *.e3m2x2 *.ue8m0x2
8.6 sm_100: *.f32x2 *.tile::gather4
"""
"""By a version and a target special registers, instructions that have no row, as they are refused, and, behind ``*.``,
modifiers of any instruction that need these."""


class _Need(NamedTuple):
    """A need: of opcodes that have some modifiers, in any place and in this order. `earlier` is that of old modules."""

    parts: tuple[str, ...]
    least: tuple[Version, str]
    earlier: tuple[Version, str]


def _pair(version: str, target: str) -> tuple[Version, str]:
    major, minor = map(int, version.split("."))
    return (major, minor), target


def _read(told: str) -> list[_Need]:
    """Read a need, one for each choice of its modifiers."""
    before, *earlier = told.split(", ")
    *choices, version, target = before.split()
    least = _pair(version, target)
    former = _pair(*earlier[0].split()) if earlier else least
    names = [name for choice in choices for name in choice.split("/")] or [""]
    return [_Need(tuple(filter(None, name.split("."))), least, former) for name in names]


def listed() -> Iterator[tuple[str, str]]:
    """Yield the names of the table, without modifiers, and the needs of each as a row has them."""
    for line in _TABLE.strip().split("\n"):
        least, names = line.split(": ")
        for first, _, modifiers in (name.partition(".") for name in names.split()):
            yield first, f"{modifiers} {least}"


_BY_NAME: dict[str, list[_Need]] = {}
"""By the beginning of an opcode, or of all of them: ``*``."""
for _name, _told in (*listed(), *((name, need) for name, row in ROWS.items() for need in row.needs)):
    _BY_NAME.setdefault(_name, []).extend(_read(_told))


@lru_cache(maxsize=4096)
def needs(opcode: str, of: Version | None = None) -> tuple[Version, str]:
    """Return the version and the target that an opcode needs in modules of a version, "" where any target will do.

    Examples
    --------
    >>> needs("wgmma.fence.sync.aligned"), needs("add.u32"), needs("cvt.rn.bf16.f32")
    (((8, 0), 'sm_90a'), ((1, 0), ''), ((7, 0), 'sm_80'))
    """
    parts = opcode.split(".")
    version, target = (1, 0), ""
    for name in ("*", *(".".join(parts[:n]) for n in range(1, len(parts) + 1))):
        for need in _BY_NAME.get(name, ()):
            if _has(parts[1:], need.parts):
                least, gpu = need.least if of is None or of >= need.least[0] else need.earlier
                version = max(version, least)
                target = max(target, gpu, key=_narrowness)
    return version, target


def _narrowness(needed: str) -> tuple[int, int]:
    """Return a key by which the target comes last that fewer GPUs are."""
    least = parsed_target(needed.partition("/")[0])
    return least.number, ("", "f", "a").index(least.suffix)


def used(opcode: str, operands: str) -> str:
    """Return an opcode with parts for operands that newer versions brought: ``_`` for a result, and counts.

    Examples
    --------
    >>> used("mbarrier.arrive.b64", "_, [%r1], 2"), used("add.u32", "%r1, %r2, 3")
    ('mbarrier.arrive.b64._.count', 'add.u32')
    """
    if opcode.startswith(("max.", "min.")):
        return opcode + ".three" * (operands.count(",") > 2)
    if not opcode.startswith("mbarrier.arrive"):
        return opcode
    is_counted = operands.count(",") > 1 and not {"expect_tx", "noComplete"}.intersection(opcode.split("."))
    return opcode + "._" * operands.lstrip().startswith("_") + ".count" * is_counted


def _has(parts: list[str], wanted: tuple[str, ...]) -> bool:
    rest = iter(parts)
    return all(one in rest for one in wanted)


def _plain(opcode: str) -> str:
    return opcode.removesuffix(".count").removesuffix("._").removesuffix(".three")


@lru_cache(maxsize=1 << 14)
def lacking(opcode: str, version: Version | None, target: str) -> str:
    """Name the feature of an opcode that the version or the target of a module lacks; nothing if it has all.

    Parameters
    ----------
    opcode : str
    version : tuple of (int, int) or None
        None where the module names none.
    target : str
        Empty where it names none; later ones than are known have all.

    Examples
    --------
    >>> lacking("mapa.u64", (8, 0), "sm_80")
    'mapa.u64 needs .target sm_90 or later, got sm_80'
    """
    return shortfall(_plain(opcode), *needs(opcode, version), version, target)
