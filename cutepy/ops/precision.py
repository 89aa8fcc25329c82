"""Whether float32 may be rounded to tf32 on its way into the tensor cores, which know no float32."""

from __future__ import annotations

from collections.abc import Callable

import torch

# Since torch 2.9; the only one that may be asked whichever of torch's settings was used. Through
# torch.backends.cuda.matmul it takes several times as long.
_precision: Callable[[str, str], str] | None = getattr(torch._C, "_get_fp32_precision_getter", None)


def tf32_allowed() -> bool:
    """Tell whether torch's settings let products of float32 round their operands to tf32.

    These are `torch.set_float32_matmul_precision("high")`, or "medium", `torch.backends.cuda.matmul.allow_tf32 = True`
    and, since torch 2.9, `torch.backends.cuda.matmul.fp32_precision = "tf32"` or that of `torch.backends`.
    """
    if _precision is None:
        return torch.get_float32_matmul_precision() != "highest"
    return _precision("cuda", "matmul") == "tf32"


def check_precision(name: str, tensor: object) -> None:
    """Check that an operand may be rounded, if it is a tensor of float32.

    Raises
    ------
    TypeError
        If not.
    """
    if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and not tf32_allowed():
        raise TypeError(
            f"{name} has dtype float32, which the tensor cores round to tf32, of 11 significant bits; allow that with "
            f'torch.set_float32_matmul_precision("high"), convert it with {name}.to(torch.bfloat16), or call within '
            "torch.autocast"
        )
