"""The corpus: kernels that run on the GPU and in the simulator with the same inputs.

A case launches one or more kernels, of the DSL or PTX; it knows of neither the GPU nor the recording. What its kernels
write is compared: bit for bit where every operation is exact, else within stated bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Largest distance of a case from the hardware.

    Attributes
    ----------
    kind : str
        How what was written is read: "f16", "bf16", "f32" or "f64".
    ulps : int
        Largest distance, in units of the last place of `kind`; a NaN matches any NaN.
    equal : float
        Share of the values that must be equal.
    absolute : float
        Differences up to this pass whatever their ulps: for results that nearly cancel.
    """

    kind: str
    ulps: int
    equal: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes
    ----------
    name : str
        Family and member, as "wgmma.random.f32.f16.f16".
    run : callable
        Makes its inputs from numpy's generators, and launches.
    bounds : Bounds or None
        None: equal bit for bit.
    dsl : bool
        The DSL compiles the kernels. Another build of the DSL's compiler may choose other instructions.
    """

    name: str
    run: Callable[[], None]
    bounds: Bounds | None = None
    dsl: bool = False


NOT_RECORDED: tuple[str, ...] = ()
"""Families of cases that are new, and wait for the next recording."""
REWRITTEN: tuple[str, ...] = ()
"""Families whose kernels have other PTX and parameters since they were recorded, and compute the same: until the next
recording their results are compared with those of the kernels that were recorded.
"""


def all_cases(*, dsl: bool = True) -> list[Case]:
    """Return the corpus; without the DSL's kernels if there is no DSL."""
    from tests.sim.hardware import cases_arithmetic, cases_memory, cases_mma

    cases = [*cases_arithmetic.cases(), *cases_memory.cases(), *cases_mma.cases()]
    if dsl:
        from tests.sim.hardware import cases_gemm, cases_simt

        cases += [*cases_gemm.cases(), *cases_simt.cases()]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    return cases
