"""Register layout conversion: the cheapest way, and its shuffle plan or shared-memory layout.

References
----------
arXiv 2505.23819, section on layout conversions: the three ways, by what of a thread's place changes. The plan of
shuffles here is another one: it gives each lane its words in an order of its own, found by linear algebra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from ..errors import LayoutError
from . import f2
from .layout import LinearLayout
from .swizzling import OptimalSwizzle, Use, optimal_swizzle

Way = Literal["none", "registers", "shuffles", "shared", "cluster"]
"""Way of a conversion, from the cheapest."""

_REGISTER, _LANE, _WARP, _BLOCK = "register", "lane", "warp", "block"
_WORD_BITS = 32


class Move(NamedTuple):
    """One shuffle of a lane: it receives `source_word` of lane `source_lane` as its word `word`.

    Value i of the word is value ``i ^ turn`` of the source's.
    """

    word: int
    source_lane: int
    source_word: int
    turn: int


@dataclass(frozen=True)
class ShufflePlan:
    """A conversion within warps, word by word.

    A *word* is a run of registers that both layouts keep together, up to 32 bits: register indices in `words` and
    `source_words`, in the order in which their elements lie in the word.

    Parameters
    ----------
    words, source_words : tuple of tuple of int
        Word -> registers of the target and of the source layout.
    rounds : tuple of tuple of Move
        For each round, the move of each lane. In a round each lane gives one word, the same to all who take it.
    words_bits : int
        Bits of a word.
    """

    words: tuple[tuple[int, ...], ...]
    source_words: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[Move, ...], ...]
    words_bits: int

    @property
    def shuffles(self) -> int:
        """Number of 32-bit shuffles of each warp: rounds in which all lanes read themselves need none."""
        moving = sum(any(move.source_lane != lane for lane, move in enumerate(moves)) for moves in self.rounds)
        return moving * -(-self.words_bits // _WORD_BITS)


@dataclass(frozen=True)
class Conversion:
    """Conversion from one register layout to another: the way, with the shuffles or shared memory that it needs.

    Parameters
    ----------
    way : "none", "registers", "shuffles", "shared" or "cluster"
        none: each thread has its values where it needs them; registers: it has them in other registers; shuffles: lanes
        of its warp have them; shared: warps of its block; cluster: other blocks.
    source, target : LinearLayout
        The layouts, with the same in- and out-dimensions.
    bits : int
        Width of a value.
    """

    way: Way
    source: LinearLayout
    target: LinearLayout
    bits: int

    @cached_property
    def plans(self) -> tuple[ShufflePlan, ...]:
        """Shuffle plans of each warp, where the way is shuffles; the warps of a block first."""
        if self.way != "shuffles":
            return ()
        plans = (shuffle_plan(self.source, self.target, self.bits, step) for step in _steps(self.source, self.target))
        return tuple(plan for plan in plans if plan is not None)

    @property
    def shuffles(self) -> int:
        """Largest number of 32-bit shuffles of a warp; 0 for other ways."""
        return max((plan.shuffles for plan in self.plans), default=0)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of each block: every value once; 0 for other ways."""
        if self.way not in ("shared", "cluster"):
            return 0
        own = [c for name in (_REGISTER, _LANE, _WARP) for c in self.source.columns_of(name)]
        return (self.bits << f2.rank(own)) // 8

    @cached_property
    def swizzle(self) -> OptimalSwizzle | None:
        """Optimal layout of shared memory for the conversion, where the way is shared memory, with its wavefronts.

        None also where a block holds a part of the tensor only.
        """
        whole = self.source.is_surjective and self.target.is_surjective and self.source.in_dims.get(_BLOCK, 1) == 1
        if self.way != "shared" or not whole:
            return None
        return optimal_swizzle([Use("st", self.source), Use("ld", self.target)], self.bits)

    def __str__(self) -> str:
        if self.way == "shuffles":
            return f"shuffles: {self.shuffles} of 32 bits a warp"
        if self.way in ("shared", "cluster"):
            taken = (
                "" if self.swizzle is None else f", {' + '.join(map(str, self.swizzle.wavefronts))} wavefronts a warp"
            )
            return f"{self.way}: {self.shared_bytes} bytes of shared memory a block{taken}"
        return self.way


def conversion(source: LinearLayout, target: LinearLayout, bits: int) -> Conversion:
    """Return the conversion of one register layout into another.

    Parameters
    ----------
    source, target : LinearLayout
        (register, lane, warp, block) -> coordinates in one tensor; warp and block may be left out of both. A value that
        several places hold may be taken from any of them.
    bits : int
        Width of a value: 8, 16, 32 or 64.

    Raises
    ------
    LayoutError
        If the dimensions are others or differ, or the source does not hold all that the target wants.

    Examples
    --------
    Two rows of 32 values, a column for each lane; and pairs of neighbours, half a row for each half of a warp:

    >>> columns = LinearLayout({"register": [[1, 0]], "lane": [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16]]},
    ...                        {"dim0": 2, "dim1": 32})
    >>> pairs = LinearLayout({"register": [[0, 1]], "lane": [[0, 2], [0, 4], [0, 8], [0, 16], [1, 0]]},
    ...                      {"dim0": 2, "dim1": 32})
    >>> print(conversion(columns, pairs, 32))
    shuffles: 2 of 32 bits a warp
    >>> print(conversion(columns, columns, 32))
    none
    """
    _check(source, target, bits)
    target = target.transpose_ins(source.in_dims).transpose_outs(source.out_dims)
    if source == target:
        return Conversion("none", source, target, bits)
    ways: tuple[tuple[Way, tuple[str, ...]], ...] = (
        ("registers", (_REGISTER,)),
        ("shuffles", (_REGISTER, _LANE)),
        ("shared", (_REGISTER, _LANE, _WARP)),
    )
    for way, moving in ways:
        if _holds_within(source, target, moving):
            if way == "shuffles" and shuffle_plan(source, target, bits) is None:
                continue  # values that lanes share, of which no plan is known
            return Conversion(way, source, target, bits)
    return Conversion("cluster", source, target, bits)


def _check(source: LinearLayout, target: LinearLayout, bits: int) -> None:
    known = {_REGISTER, _LANE, _WARP, _BLOCK}
    if bits not in (8, 16, 32, 64):
        raise LayoutError("conversion", (source, target, bits), f"bits must be 8, 16, 32 or 64, got {bits}")
    for what, mine, theirs in (
        ("in", source.in_dims, target.in_dims),
        ("out", source.out_dims, target.out_dims),
    ):
        if set(mine) != set(theirs) or (what == "out" and mine != theirs and dict(mine) != dict(theirs)):
            raise LayoutError(
                "conversion", (source, target), f"{what}-dimensions must be the same, got {mine} and {theirs}"
            )
    if not {_REGISTER, _LANE} <= set(source.in_dims) <= known:
        raise LayoutError(
            "conversion",
            (source, target),
            f"need in-dimensions register, lane, and warp or block, got {source.in_dims}",
        )
    for name in (_LANE, _WARP, _BLOCK):
        if source.in_dims.get(name, 1) != target.in_dims.get(name, 1):
            raise LayoutError(
                "conversion",
                (source, target),
                f"both need as many {name}s, got {source.in_dims[name]} and {target.in_dims[name]}",
            )
    target.transpose_outs(source.out_dims).invert_and_compose(source)


def _holds_within(source: LinearLayout, target: LinearLayout, moving: Sequence[str]) -> bool:
    """Return whether every place finds its values in places that differ in `moving` dimensions only.

    By linearity this is a condition on bases: the target's, less the source's of the same lane, warp or block where
    that stays, must be in the span of the source's moving ones.
    """
    span = f2.Echelon(c for name in moving for c in source.columns_of(name))
    for name in target.in_dims:
        stays = () if name in moving else source.columns_of(name)
        for i, column in enumerate(target.columns_of(name)):
            if column ^ (stays[i] if stays else 0) not in span:
                return False
    return True


def _steps(source: LinearLayout, target: LinearLayout) -> list[int]:
    """Return the distance between the two layouts in each warp of each block."""
    steps = [0]
    for name in (_WARP, _BLOCK):
        for a, b in zip(source.columns_of(name), target.columns_of(name), strict=True):
            steps += [step ^ a ^ b for step in steps]
    return steps


def shuffle_plan(source: LinearLayout, target: LinearLayout, bits: int, step: int = 0) -> ShufflePlan | None:
    """Return a plan of shuffles within a warp, or None where none is found.

    `step` is what to add to the target's values to be relative to the source's warp.

    Where both layouts hold each value once in a warp, a plan is always found, and none of words as wide has fewer
    shuffles: in each round a lane receives one word, and every lane needs all those that it has not got.
    """
    t_registers, s_registers = target.columns_of(_REGISTER), source.columns_of(_REGISTER)
    shared = f2.intersection(f2.independent(t_registers), f2.independent(s_registers))
    together = shared[: max(0, (_WORD_BITS // bits).bit_length() - 1)]
    t_words, s_words = _words(t_registers, together), _words(s_registers, together)
    # Distinct words of either side, by the bases that separate them.
    w_cols, v_cols = f2.complement(together, 0, t_registers), f2.complement(together, 0, s_registers)
    maps = _sources(together, w_cols, v_cols, target.columns_of(_LANE), source.columns_of(_LANE))
    choice = None if maps is None else _choice(maps, len(w_cols))
    away = _sources(together, [step], v_cols, (), source.columns_of(_LANE))
    if maps is None or choice is None or away is None:
        return None
    rounds = []
    for t in range(1 << len(w_cols)):
        words = [t ^ f2.times(choice, lane) for lane in range(target.in_dims[_LANE])]
        taken = [w | lane << len(w_cols) for lane, w in enumerate(words)]
        rounds.append(
            tuple(
                Move(words[lane], *(f2.times(m, at) ^ a[0] for m, a in zip(maps, away, strict=True)))
                for lane, at in enumerate(taken)
            )
        )
    return ShufflePlan(
        tuple(t_words[value] for value in f2.span_of(w_cols)),
        tuple(s_words[value] for value in f2.span_of(v_cols)),
        tuple(rounds),
        bits << len(together),
    )


def _words(registers: Sequence[int], together: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Map the first value of a word to its registers: the first of those that hold each of its values."""
    first: dict[int, int] = {}
    for register in range(1 << len(registers)):
        first.setdefault(f2.times(registers, register), register)
    run = f2.span_of(together)
    return {value: tuple(first[value ^ step] for step in run) for value in first}


class _Maps(NamedTuple):
    """Linear maps from (word, lane) of the target, the word's bits lowest, as columns."""

    lane: list[int]
    word: list[int]
    turn: list[int]


def _sources(
    together: Sequence[int],
    w_cols: Sequence[int],
    v_cols: Sequence[int],
    t_lanes: Sequence[int],
    s_lanes: Sequence[int],
) -> _Maps | None:
    """Return the source lane of each lane's words: the lane itself if possible; None if not in the warp."""
    low, high = len(together), len(together) + len(v_cols)
    registers = f2.Echelon([*together, *v_cols])
    warp = f2.Echelon([*together, *v_cols, *s_lanes])
    maps = _Maps([], [], [])
    for i, column in enumerate([*w_cols, *t_lanes]):
        lane = i - len(w_cols)
        mask = registers.solve(column ^ s_lanes[lane]) if lane >= 0 else registers.solve(column)
        if mask is not None:
            mask |= 1 << (high + lane) if lane >= 0 else 0
        else:
            mask = warp.solve(column)
        if mask is None:
            return None
        maps.turn.append(mask & ((1 << low) - 1))
        maps.word.append(mask >> low & ((1 << len(v_cols)) - 1))
        maps.lane.append(mask >> high)
    return maps


def _choice(maps: _Maps, words: int) -> list[int] | None:
    """Choose the word bits that each lane bit flips: in round t lane l receives word ``t ^ choice(l)``.

    In no round may two lanes take different words from one. If possible, lanes take from themselves in round 0; the
    lane of the source is then ``l`` plus what depends on t alone. Else each lane bit whose source lane others' sum to
    flips a word bit that leads elsewhere. None where that is not enough.
    """
    s_w, s_l = maps.lane[:words], maps.lane[words:]
    by_word = f2.Echelon(s_w)
    own = [by_word.solve((1 << i) ^ column) for i, column in enumerate(s_l)]
    if all(mask is not None for mask in own):
        return [mask for mask in own if mask is not None]
    span, choice = f2.Echelon(), [0] * len(s_l)
    dependent = [i for i, column in enumerate(s_l) if not span.add(column)]
    for i, mask in zip(dependent, f2.kernel(s_l), strict=True):
        away = next((w for w, column in enumerate(s_w) if span.add(column)), None)
        if away is not None:
            choice[i] = 1 << away
        elif f2.times(maps.word[words:], mask) or f2.times(maps.turn[words:], mask):
            return None
    return choice
