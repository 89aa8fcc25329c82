"""Index of a device on a machine with one GPU: every other index is an error, as torch has it there."""

from __future__ import annotations


def index_of(device: object = None) -> int:
    """Return the index of a device.

    Parameters
    ----------
    device : torch.device, str, int, None, or another object
        None, or another object, is the current device. Torch takes a negative number for a choice of no device.

    Raises
    ------
    torch.AcceleratorError
        If the machine does not have the device.
    """
    index = _ordinal(device)
    if index > 0:
        import torch

        raise torch.AcceleratorError(
            f"CUDA error: invalid device ordinal: the simulated machine has one device, got {device}"
        )
    return index


def require_device(device: object = None) -> None:
    """Require a device that has properties, which torch asks before the driver is asked.

    Raises
    ------
    AssertionError
        If the machine does not have the device.
    """
    if _ordinal(device):
        raise AssertionError(f"Invalid device id: the simulated machine has one device, got {device}")


def _ordinal(device: object) -> int:
    if device is None or isinstance(device, int):
        return device or 0
    import torch

    if isinstance(device, (str, torch.device)):
        return torch.device(device).index or 0
    return 0  # torch takes any other object, such as a stream, for the current device
