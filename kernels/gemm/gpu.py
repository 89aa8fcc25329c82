"""SM count and memory bandwidth of a GPU, on which the choice of a kernel depends."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cutepy.host.function import WrongDeviceError
from cutepy.layouts.sm90.arch import SM_COUNT
from cutepy.runtime.devices import DEVICES
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.program import HOPPER as HOPPER

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that kernels are chosen for.

    Attributes
    ----------
    sm_count : int
        Its SMs.
    memory_tbs : float
        TB/s of its memory, by clock and width.

    Raises
    ------
    ValueError
        If there is no SM, or memory doesn't move.

    Examples
    --------
    >>> Gpu(sm_count=114, memory_tbs=2.04)
    Gpu(sm_count=114, memory_tbs=2.04)
    """

    sm_count: int
    memory_tbs: float

    def __post_init__(self) -> None:
        """Check the number of SMs and the bandwidth."""
        if self.sm_count < 1:
            raise ValueError(f"sm_count must be at least 1, got {self.sm_count}; give the SMs of the GPU")
        if not self.memory_tbs > 0:
            raise ValueError(f"memory_tbs must be above 0, got {self.memory_tbs}; give the TB/s of the GPU's memory")


H200, H100 = Gpu(SM_COUNT, 4.81), Gpu(SM_COUNT, 3.35)
"""GPUs that choices were measured on; the H100 is an SXM module with HBM3."""
_WHAT = "cutepy's operations"
_H100_BYTES = 100e9
"""Threshold of memory size that tells an H100 from an H200."""


def gpu_of(device: "torch.device") -> Gpu:
    """Describe a Hopper GPU, or the one that the simulator models.

    The result is kept for each device of this machine. The bandwidth follows from the memory's clock and width; where
    torch doesn't tell these, from the memory's size.

    Raises
    ------
    WrongDeviceError
        If it is no Hopper.
    """
    if EXECUTION.backend is not None:
        WrongDeviceError.check_simulated(_WHAT, HOPPER)
        return H200
    if device.type != "cuda":
        return H200  # where kernels are only compiled
    import torch

    return _asked(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _asked(index: int) -> Gpu:
    """Query torch for a GPU's SMs and memory."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    if (properties.major, properties.minor) != DEVICES[HOPPER].capability:
        WrongDeviceError.check(_WHAT, HOPPER, index)
    clock_khz, bits = (getattr(properties, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    if clock_khz and bits:
        memory_tbs = round(2e3 * clock_khz * bits / 8 * 1e-12, 2)  # DDR: two transfers a clock
    else:
        memory_tbs = (H200 if properties.total_memory > _H100_BYTES else H100).memory_tbs
    return Gpu(int(properties.multi_processor_count), memory_tbs)
