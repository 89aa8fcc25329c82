"""Grouped GEMM configurations: a GEMM's tiles, and the extent that the groups divide, checked before compiling."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from cutepy.device.rules import K_BLOCK
from cutepy.kernels.gemm.config import GemmConfig

Along = Literal["m", "n", "k"]


class Grouping(NamedTuple):
    """Layout of a tensor's groups.

    Attributes
    ----------
    ragged : 0, 1 or None
        The mode along which they follow one another; the other is contiguous.
    batched : bool
        True if each group has a matrix of its own.
    """

    ragged: int | None
    batched: bool


_PLACES = {"sA": 0, "sB": 1}
_VECTORS = {"column": 0, "row": 1}
"""Mode of the results that each kind of vector runs along."""
_RAGGED: dict[Along, tuple[int | None, int | None, int | None]] = {
    "m": (0, None, 0),
    "n": (None, 0, 1),
    "k": (1, 1, None),
}
GRADIENTS: dict[Along, tuple[Along, Along]] = {"m": ("m", "k"), "n": ("k", "m"), "k": ("n", "n")}
"""Extent that the groups divide in the products of the gradients by A and B: grad B, and grad^T A."""


def unit(along: Along, operand_bits: int) -> int:
    """Return the alignment of group ends: along K that of 8-bit operands, which TMA can't cut within a row."""
    return K_BLOCK if along == "k" and operand_bits == 8 else 1


def ragged_modes(along: Along, operand_bits: int) -> tuple[int | None, int | None, int | None]:
    """Return the modes of A (M, K), B (N, K), and (M, N) tiles along which groups begin anywhere.

    Examples
    --------
    >>> ragged_modes("m", 16), ragged_modes("k", 16), ragged_modes("k", 8)
    ((0, None, 0), (1, 1, None), (None, None, None))
    """
    return _RAGGED[along] if unit(along, operand_bits) == 1 else (None, None, None)


def has_one_for_each(shape: str, along: Along, padded: bool) -> bool:
    """Return whether a kernel takes one "row" or "column" for each group: the groups don't divide its mode."""
    return padded or _RAGGED[along][2] != _VECTORS[shape]


@dataclass(frozen=True, kw_only=True)
class GroupedConfig:
    """Configuration of a kernel that computes one product for each group.

    Attributes
    ----------
    gemm : GemmConfig
        Configuration of each product.
    along : "m", "n" or "k"
        Whose extents the groups have: M, with rows of A and of the results; N, with rows of B and columns of the
        results; or K, with columns of A and B. What has no such mode is a matrix for each group.
    padded : bool
        True if each group has matrices of its own there too, of which it uses so many rows (masked).

    Examples
    --------
    >>> from cutepy.kernels.gemm import GemmSignature
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> config = GroupedConfig(gemm=GemmConfig(signature=half, tile_m=128, tile_n=128), along="m")
    >>> config.grouping("sA"), config.grouping("sB")
    (Grouping(ragged=0, batched=False), Grouping(ragged=None, batched=True))
    >>> GroupedConfig(gemm=config.gemm, along="k")
    Traceback (most recent call last):
    ...
    ValueError: a must be "mn"-major where groups are along k, so that groups can begin anywhere, got "k"; copy it
    """

    gemm: GemmConfig
    along: Along
    padded: bool = False

    def __post_init__(self) -> None:
        """Refuse a configuration that tensor maps for groups, or their schedules, can't have."""
        if self.along not in get_args(Along):
            raise ValueError(f'along must be "m", "n" or "k", got {self.along!r}')
        gemm, signature = self.gemm, self.gemm.signature
        if signature.batch_modes:
            raise ValueError(f"groups take the place of a batch, got {signature.batch_modes} batch_modes")
        if any(signature.by_threads):
            raise ValueError(
                f"TMA loads the operands of groups, got a_align {signature.a_align} and b_align {signature.b_align}; "
                "use 16"
            )
        # The mode along which groups begin anywhere must not be the contiguous one.
        majors = {"m": {"a": "k", "out": "row"}, "n": {"b": "k", "out": "col"}, "k": {"a": "mn", "b": "mn"}}[self.along]
        for name, wanted in majors.items() if self.along != "k" or self.unit == 1 else ():
            if (got := getattr(signature, f"{name}_major")) != wanted:
                raise ValueError(
                    f'{name} must be "{wanted}"-major where groups are along {self.along}, so that groups can begin '
                    f'anywhere, got "{got}"; copy it'
                )
        if self.unit not in (1, gemm.tile_k):
            raise ValueError(
                f"tile_k must be {self.unit}, at multiples of which groups of 8-bit operands begin along k, got "
                f"{gemm.tile_k}"
            )
        if gemm.stream_k:
            raise ValueError("groups take whole tiles, so K may not be shared, got stream_k; leave it out")
        if gemm.dynamic:
            raise ValueError("groups have schedules of their own, got dynamic; leave it out")
        if self.along == "k" and (gemm.consumers > 1 or gemm.split_k > 1):
            raise ValueError(
                "consumers and split_k must be 1 for groups along k, since their K differs, got "
                f"{gemm.consumers} and {gemm.split_k}"
            )
        if reductions := signature.graph.reductions:
            raise ValueError(
                "the epilogue of grouped products must have no reductions, got "
                f"{', '.join(kind for kind, _ in reductions)}"
            )
        if self.along == "n" and signature.graph.widest > 1:
            raise ValueError(
                f"the epilogue must not interleave columns where groups are along n, got {signature.graph}; "
                "transpose the product"
            )
        for operand, (_, major) in zip(signature.graph.operands, signature.operand_types, strict=True):
            if self.along != "k" and operand.shape == "tile" and major != majors["out"]:
                raise ValueError(
                    f'{operand.name} must be "{majors["out"]}"-major as the results, got "{major}"; copy it'
                )

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        padded = "_padded" if self.padded else ""
        return self.gemm.name.replace("cutepy_gemm", f"cutepy_grouped_{self.along}{padded}", 1)

    def grouping(self, name: str) -> Grouping:
        """Return the layout of a tensor's groups, by the name of its region of shared memory.

        Of an epilogue's operands, "row" (N,) and "column" (M,), too: there is one for each group where the groups don't
        divide its mode. Scales of A and B that differ along K are grouped as these are.
        """
        if name in _VECTORS:
            each = has_one_for_each(name, self.along, self.padded)
            return Grouping(None if each else _VECTORS[name], each)
        place = _PLACES.get(name, 2)
        batched = self.padded or _RAGGED[self.along][place] is None
        return Grouping(ragged_modes(self.along, self.gemm.signature.operand_bits)[place], batched)

    def free_mode(self, name: str) -> int | None:
        """Return the mode of A ("sA") or B whose extent may be 0: the one along which groups follow one another.

        The rows of padded groups set the launch's grid, so they are 1 at least.

        Examples
        --------
        >>> from cutepy.kernels.gemm import GemmSignature
        >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
        >>> config = GroupedConfig(gemm=GemmConfig(signature=half, tile_m=128, tile_n=128), along="m")
        >>> config.free_mode("sA"), config.free_mode("sB")
        (0, None)
        """
        return None if self.padded and self.along != "k" else self.grouping(name).ragged

    @property
    def unit(self) -> int:
        """Alignment of group ends; other ends are rounded up."""
        return unit(self.along, self.gemm.signature.operand_bits)
