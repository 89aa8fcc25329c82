"""Products of 8 and 4 bits with scale factors, composed of operators that a CPU build of torch has.

A CPU build scales by a tensor or a row; CUDA also by blocks of 16 or 32 elements along K, whose factors lie in tiles
of 128 rows by 4 blocks.

References
----------
PyTorch: ``torch._scaled_mm``, ``torch.nn.functional.scaled_grouped_mm``. cuBLAS, "1D Block Scaling Factors Layout" (a
tile has row r, block b at byte 16 * (r % 32) + 4 * (r / 32) + b), "16/32-Element 1D Block Scaling", "D scale": it
multiplies the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cutepy.frontends.torch_device.errors import NotServedError

_ELEMS = {torch.float8_e4m3fn: 16, torch.float8_e8m0fnu: 32}
"""Elements of a block, by the type of its factor."""
_TILE_ROWS, _TILE_BLOCKS = 128, 4
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return (scale_a * self) @ (scale_b * mat2) + bias, summed in float32: `torch._scaled_mm` of CUDA.

    Parameters
    ----------
    self, mat2 : Tensor, (M, K) and (K, N)
        Of 8 bits, or ``float4_e2m1fn_x2``, which has two elements of K in a byte.
    scale_a, scale_b : Tensor
        float32 of one element, or (M, 1) and (1, N); or factors of blocks: ``float8_e8m0fnu`` of 32 elements,
        ``float8_e4m3fn`` of 16.
    bias : Tensor, (N,), optional
    scale_result : Tensor, optional
        Multiplies a result of 8 bits.
    out_dtype : torch.dtype, optional
        Default: that of `self`.

    Raises
    ------
    RuntimeError
        If factors do not fit the operands.
    """
    left, right = _scaled("scale_a", self, scale_a), _scaled("scale_b", mat2.t(), scale_b.t())
    result = left @ right.t()
    if bias is not None:
        result = result + bias.float()
    dtype = out_dtype or self.dtype
    if dtype.itemsize == 1:
        most = torch.finfo(dtype).max
        result = (result if scale_result is None else result * scale_result).clamp(-most, most)
    return result.to(dtype) if out is None else out.copy_(result)


def scaled_grouped_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """Return a product for each group, as `torch.nn.functional.scaled_grouped_mm` of CUDA.

    Parameters
    ----------
    self, mat2 : Tensor
        (rows of all groups, K) and (groups, K, N); or (M, K of all groups) and (K of all groups, N).
    scale_a, scale_b : list of Tensor
        Factors of blocks, those of a group behind those of the one before; and one of float32 for each group, if any.
    offs : Tensor, (groups,)
        End of each group.

    Raises
    ------
    NotServedError
        If the factors are not of blocks in tiles.
    """
    if scale_a[0].dtype not in _ELEMS or scale_b[0].dtype not in _ELEMS or offs is None or bias is not None:
        raise NotServedError(
            "torch.nn.functional.scaled_grouped_mm is served on the simulated cuda device with factors of blocks of 16 "
            f"or 32 elements, offs and no bias; got recipes {recipe_a} and {recipe_b}"
        )
    packed = 2 if self.dtype == torch.float4_e2m1fn_x2 else 1
    parts_a, parts_b, found, begin = _Parts(scale_a[0]), _Parts(scale_b[0]), [], 0
    for group, end in enumerate(offs.tolist()):
        if mat2.dim() == 3:
            left, right = self[begin:end], mat2[group].t()
        else:
            at = slice(begin // packed, end // packed)
            left, right = self[:, at], mat2[at].t()
        factors = [part.of(one.shape[0], packed * one.shape[1]) for part, one in ((parts_a, left), (parts_b, right))]
        product = _scaled("scale_a", left, factors[0]) @ _scaled("scale_b", right, factors[1]).t()
        for scales in (scale_a, scale_b):
            product = product * scales[1][group] if len(scales) > 1 else product
        found.append(product)
        begin = end
    dtype = out_dtype or torch.bfloat16
    if mat2.dim() == 2:
        return torch.stack(found).to(dtype)
    rest = found[0].new_zeros(len(self) - begin, mat2.shape[2]) if found else self.new_zeros(len(self), mat2.shape[2])
    return torch.cat((*found, rest)).to(dtype)


class _Parts:
    """Factors of several operands, one after the other."""

    def __init__(self, scale: Tensor) -> None:
        self._left = scale.reshape(-1)

    def of(self, rows: int, k: int) -> Tensor:
        """Take the factors of the next operand."""
        tiles = _tiles(rows, k, _ELEMS[self._left.dtype])
        size = tiles[0] * tiles[1] * _TILE_ROWS * _TILE_BLOCKS
        found, self._left = self._left[:size], self._left[size:]
        return found


def _scaled(name: str, x: Tensor, scale: Tensor) -> Tensor:
    """Return the values (rows, K) of an operand, whose factors have a name for errors."""
    values = _values(x)
    rows, k = values.shape
    if scale.dtype not in _ELEMS:
        if scale.numel() not in (1, rows):
            raise RuntimeError(f"_scaled_mm: {name} must have 1 or {rows} elements of float32, got {scale.numel()}")
        return values * (scale if scale.numel() == 1 else scale.reshape(rows, 1))
    elems = _ELEMS[scale.dtype]
    tiles = _tiles(rows, k, elems)
    size = tiles[0] * tiles[1] * _TILE_ROWS * _TILE_BLOCKS
    if scale.numel() != size:
        raise RuntimeError(
            f"_scaled_mm: {name} must have {size} factors, {tiles[0]} x {tiles[1]} tiles of 128 rows by 4 blocks of "
            f"{elems}, got {scale.numel()}"
        )
    by_tile = scale.reshape(-1).float().view(*tiles, 32, 4, _TILE_BLOCKS)
    factors = by_tile.permute(0, 3, 2, 1, 4).reshape(tiles[0] * _TILE_ROWS, tiles[1] * _TILE_BLOCKS)[:rows]
    return values * factors.repeat_interleave(elems, 1)[:, :k]


def _tiles(rows: int, k: int, elems: int) -> tuple[int, int]:
    """Return how many tiles of factors an operand has along its rows and along K."""
    return -(-rows // _TILE_ROWS), -(-k // (elems * _TILE_BLOCKS))


def _values(x: Tensor) -> Tensor:
    """Return the values of elements as float32."""
    if x.dtype != torch.float4_e2m1fn_x2:
        return x.float()
    codes = x.view(torch.uint8).contiguous()
    table = torch.tensor((*_E2M1, *(-one for one in _E2M1)), device=x.device)
    both = torch.stack((codes & 15, codes >> 4), -1).flatten(1)
    return table[both.long()]
