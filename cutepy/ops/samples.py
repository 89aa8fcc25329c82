"""Samples of the classes of rows of logits as an operation of PyTorch: `sample`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutepy.host.launches import Launches, OptionalTensor, described
from cutepy.kernels.rows.compilation import as_rows
from cutepy.kernels.rows.config import PHILOX_FACTORS, PHILOX_STEPS
from cutepy.kernels.rows.plans import plan_sample
from cutepy.ops import shardings
from cutepy.ops.checking import as_tensor
from cutepy.ops.registration import one_by_one, register_both
from cutepy.ops.row_tensors import check_row_tensors
from cutepy.runtime.execution import EXECUTION

_WORD, _LEAST = 2**32 - 1, 2.0**-100

_launches: Launches[Callable[..., None]] = Launches()


def sample(
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    *,
    seed: int | torch.Tensor | None = None,
    offset: int = 0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Draw a class of each row with the probabilities softmax(logits / temperature).

    The same seed and offset draw the same class of a row, by its index, in every run, batch and tiling.

    Parameters
    ----------
    logits : Tensor (..., classes)
        float16, bfloat16 or float32, 1 to 262,144 classes. NaN counts as -inf.
    temperature : float
        0 draws the largest logit, the first of equal ones.
    top_k : int, optional
        Draws of the k largest classes, and those that equal the last of them.
    top_p : float, optional
        Draws of the fewest classes, of those that `top_k` leaves, that have this probability in all, and those that
        equal the last of them; from 0, which leaves the largest, to 1.
    seed : int or Tensor of one int64, optional
        A tensor on the device of the logits may change between replays of a CUDA graph. Drawn by the generator if not
        given.
    offset : int
        Another number to draw by, such as the position of a token.
    generator : torch.Generator, optional
        Of the CPU; torch's own if not given.

    Returns
    -------
    Tensor (...), int64
        -1 of rows without a logit above -inf. There are no gradients.

    Raises
    ------
    TypeError, ValueError
        If dtypes, shapes or options are others.

    Examples
    --------
    >>> import torch
    >>> sample(torch.tensor([[0.0, 9.0, 1.0], [5.0, 5.0, 5.0]]), top_p=0.9, seed=1)[:1]
    tensor([1])
    """
    classes = logits.shape[-1] if as_tensor("logits", logits).dim() else 0
    if not classes:
        raise ValueError(f"logits must be (..., classes), of at least one, got {tuple(logits.shape)}")
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be 1 or more, got {top_k}")
    if top_p is not None and not 0 <= top_p <= 1:
        raise ValueError(f"top_p must be from 0 to 1, got {top_p}")
    if isinstance(seed, torch.Tensor) and (seed.numel() != 1 or seed.dtype != torch.int64):
        raise ValueError(f"seed must be a number or one int64, got {tuple(seed.shape)} of {seed.dtype}")
    if seed is None:
        seed = int(torch.randint(2**62, (), generator=generator))
    seeds, number = (seed.reshape(1), 0) if isinstance(seed, torch.Tensor) else (None, _signed(seed))
    k = 0 if top_k is None or top_k >= classes else top_k
    p = 1.0 if top_p is None else float(top_p)
    return _sample(logits.detach(), seeds, number, _signed(offset), float(temperature), k, p)


def _signed(number: int) -> int:
    """Return the int64 of a number's lowest 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def _empty(
    logits: torch.Tensor, seeds: OptionalTensor, seed: int, offset: int, temperature: float, k: int, p: float
) -> torch.Tensor:
    check_row_tensors("sample", logits=logits)
    if seeds is not None and seeds.device != logits.device:
        raise ValueError(f"seed must be on logits' device {logits.device}, got {seeds.device}; move it")
    return logits.new_empty(logits.shape[:-1], dtype=torch.int64)


def _reference(
    logits: torch.Tensor, seeds: OptionalTensor, seed: int, offset: int, temperature: float, k: int, p: float
) -> torch.Tensor:
    _empty(logits, seeds, seed, offset, temperature, k, p)
    wide = logits.reshape(-1, logits.shape[-1]).double().nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    if k:
        wide = wide.masked_fill(wide < wide.topk(k).values[:, -1:], -torch.inf)
    scale = 1 / temperature if temperature else 1.0
    if p < 1:
        ordered = wide.sort(descending=True).values
        reached = (ordered * scale).softmax(-1).cumsum(-1)
        last = (reached < p).sum(-1, keepdim=True).clamp(max=wide.shape[-1] - 1)
        wide = wide.masked_fill(wide < ordered.gather(-1, last), -torch.inf)
    scores = wide * scale
    if temperature:
        drawn = random_numbers(wide.shape, seeds if seeds is not None else seed, offset, wide.device)
        scores = scores - (-((drawn >> 9).double() + 0.5).mul(2.0**-23).log()).log()
    found = scores.argmax(-1).masked_fill((wide == -torch.inf).all(-1), -1)
    return found.reshape(logits.shape[:-1])


def random_numbers(shape: torch.Size, seed: int | torch.Tensor, offset: int, device: torch.device) -> torch.Tensor:
    """Compute the 32 random bits of each class of rows (rows, classes), as int64: Philox4x32-10."""
    rows = torch.arange(shape[0], device=device)[:, None]
    counter = [
        torch.arange(-(-shape[1] // 4), device=device)[None].expand(shape[0], -1),
        rows,
        torch.tensor(offset & _WORD, device=device),
        torch.tensor(offset >> 32 & _WORD, device=device),
    ]
    key = [seed & _WORD, seed >> 32 & _WORD]
    for _ in range(10):
        (low0, high0), (low2, high2) = (
            _product(counter[n], factor) for n, factor in zip((0, 2), PHILOX_FACTORS, strict=True)
        )
        counter = [high2 ^ counter[1] ^ key[0], low2, high0 ^ counter[3] ^ key[1], low0]
        key = [k + step & _WORD for k, step in zip(key, PHILOX_STEPS, strict=True)]
    numbers = torch.stack(torch.broadcast_tensors(*counter), -1)
    return numbers.flatten(1)[:, : shape[1]]


def _product(x: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply 32 bits by 32 bits: the low and the high 32 bits of the product."""
    low, high = x * (factor & 0xFFFF), x * (factor >> 16)
    middle = high + (low >> 16)
    return (middle << 16 | low & 0xFFFF) & _WORD, middle >> 16


def _vmap(info: Any, in_dims: tuple[Any, ...], logits: torch.Tensor, *rest: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the rows of all examples one tensor's, of one seed."""
    if in_dims[0] is None or in_dims[1] is not None:
        return one_by_one(_sample)(info, in_dims, logits, *rest)  # type: ignore[no-any-return]
    return _sample(logits.movedim(in_dims[0], 0), *rest), 0


@register_both(
    "cutepy::sample",
    reference=_reference,
    fake=_empty,
    vmap=_vmap,
    sharding=shardings.of_sample,
    is_invariant=True,
)
def _sample(
    logits: torch.Tensor, seeds: OptionalTensor, seed: int, offset: int, temperature: float, k: int, p: float
) -> torch.Tensor:
    classes = _empty(logits, seeds, seed, offset, temperature, k, p)
    if classes.numel():
        given = as_rows(logits), seeds, classes.view(-1)
        cuts, greedy = p < 1, temperature == 0
        key = (k, cuts, greedy, EXECUTION.backend is None, *described(*given))
        launch = _launches.get(key)
        if launch is None:
            launch = _launches.keep(key, plan_sample(*given, k=k, cuts=cuts, greedy=greedy))
        # The largest class has a part of any probability above 0.
        launch(*given, seed, offset, 1 / temperature if temperature else 1.0, max(p, _LEAST))
    return classes
