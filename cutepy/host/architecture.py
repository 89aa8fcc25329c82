"""The architecture that kernels are compiled for."""

from cutepy.host import environment
from cutepy.runtime.devices import checked_arch, device, is_chosen
from cutepy.runtime.program import HOPPER


def chosen_arch(arch: str | None = None) -> str:
    """Return an architecture that is given, or else that of the simulated GPU, of CUTE_DSL_ARCH, or "sm_90a".

    Raises
    ------
    ValueError
        If there is no such GPU in `cutepy.runtime.devices`.

    Examples
    --------
    >>> chosen_arch("sm_100a")
    'sm_100a'
    """
    if arch is None:
        arch = device().arch if is_chosen() else environment.ARCH.read() or HOPPER
    return checked_arch(arch)
