"""Search space of `cutepy tune attention`, and look-up of its winners: problems and candidates as plain values."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from cutepy.kernels.attention.choice import (
    LARGEST_HEAD,
    SHORT,
    are_few,
    choose_backward,
    choose_batches,
    gradients_by_counter,
    has_cta_each,
    width_of_batches,
)
from cutepy.kernels.attention.config import BackwardConfig, ForwardConfig
from cutepy.tune import Settings, Space, winner

NAME = "attention"
MOST = 100
"""Largest number of candidates timed for a problem: those whose tiles are least empty, and of these the largest."""
DTYPES = ("float16", "bfloat16", "float8_e4m3fn")
_REGISTERS = {1: 208, 2: 208, 3: 136}
"""Registers of a consumer thread that accumulators and operands may have, by warpgroups: 24 to 32 fewer than it has."""


@dataclass(frozen=True)
class Problem:
    """Attention of a batch of equal matrices, or its gradients, without functions of its scores.

    Attributes
    ----------
    kind : str
        "forward" or "backward".
    dtype : str
        Of Q, K and V.
    batch, queries, keys, heads, kv_heads, head, head_v : int
    left, right : int or None
        Keys before and after a query's position that it sees; None for all.
    """

    kind: Literal["forward", "backward"]
    dtype: str
    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    head: int
    head_v: int
    left: int | None = None
    right: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The problem in plain values."""
        return asdict(self)

    @property
    def bounds(self) -> tuple[bool, bool]:
        """True where keys before, and after, a query's position are bounded."""
        return self.left is not None, self.right is not None


class AttentionChoice(NamedTuple):
    """Choice for a problem.

    Attributes
    ----------
    config : ForwardConfig or BackwardConfig
    is_persistent : bool
        True if each SM has one CTA, which takes tiles in turn; else each tile has one.
    """

    config: ForwardConfig | BackwardConfig
    is_persistent: bool


FORWARD = (
    Space(
        {
            "tile_m": (64, 128, 192),
            "tile_n": (32, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
            "stages": (2, 3, 4),
            "loaded": (1, 2),
            "ordered": (True, False),
            "is_persistent": (True, False),
        }
    )
    .where("mostly empty rows", lambda tile_m, queries: tile_m < 2 * max(64, queries))
    .where("mostly empty columns", lambda tile_n, keys: tile_n < 2 * max(32, keys))
    .where("parts of an MMA along the keys", lambda tile_n, dtype: tile_n % 32 == 0 or dtype != "float8_e4m3fn")
    .where("stages of values that nothing transposes", lambda loaded, dtype: loaded == 2 or dtype == "float8_e4m3fn")
    .where("turns of one warpgroup", lambda tile_m, ordered: tile_m > 64 or not ordered)
    .where("one warpgroup for many queries", lambda tile_m, queries: tile_m > 64 or queries <= SHORT)
    .where(
        "accumulators of O and S, and P, that take all registers",
        lambda tile_m, tile_n, head_v, dtype: (
            head_v / 2 + tile_n / 2 + tile_n / (8 if dtype == "float8_e4m3fn" else 4) <= _REGISTERS[tile_m // 64]
        ),
    )
)
"""Candidates of forward kernels, but for those whose stages don't fit."""
BACKWARD = (
    Space(
        {
            "tile_k": (64, 128),
            "tile_q": (64, 80, 96, 112, 128),
            "stages": (2, 3),
            "is_persistent": (True, False),
        }
    )
    .where("mostly empty rows", lambda tile_k, keys: tile_k < 2 * max(64, keys))
    .where("mostly empty columns", lambda tile_q, queries: tile_q < 2 * max(64, queries))
    .where(
        "queries of which dQ's MMAs have no whole part",
        lambda tile_k, tile_q, head: tile_q % 64 == 0 or (tile_k == 128 and 64 < head <= 128),
    )
    .where(
        "accumulators of dK, dV, S and dP that take all registers",
        lambda tile_k, tile_q, head, head_v: (
            (-(-head // 64) + -(-head_v // 64)) * 32 / (2 if tile_k == 64 else 1)
            + max(tile_q / (2 if tile_k == 64 else 1), tile_q * -(-head // 64) * 64 / 256)
            <= _REGISTERS[2]
        ),
    )
)
"""Candidates of backward kernels, but for those whose stages don't fit: two warpgroups share 64 keys, or have 128."""


def problem_of(settings: Settings) -> Problem:
    """Return the problem that is described."""
    given: dict[str, Any] = dict(settings)
    return Problem(**given)


ENDS = (
    "q_stages", "o_stages", "begins_early", "divides_fast", "masks_parts", "o_over_q", "dynamic", "rescales_late",
    "packed",
)  # fmt: skip
"""Fields of `ForwardConfig` beside the axes: described where they differ from the defaults."""
OF_GRADIENTS = ("transposes_sums", "begins_with_k", "overlaps", "dynamic")
"""Fields of `BackwardConfig` beside the axes, described likewise."""


def candidate_of(chosen: AttentionChoice) -> dict[str, Any]:
    """Describe a choice in plain values."""
    config = chosen.config
    space = FORWARD if isinstance(config, ForwardConfig) else BACKWARD
    described = {name: getattr(config, name, chosen.is_persistent) for name in space.axes}
    plain = {each.name: each.default for each in fields(config)}
    names = ENDS if isinstance(config, ForwardConfig) else OF_GRADIENTS
    return described | {name: getattr(config, name) for name in names if getattr(config, name) != plain[name]}


def chosen_of(problem: Problem, candidate: Settings) -> AttentionChoice:
    """Return the choice that is described.

    Raises
    ------
    ValueError, TypeError, KeyError
        If there is no such kernel.
    """
    settings: dict[str, Any] = dict(candidate)
    is_persistent = bool(settings.pop("is_persistent"))
    of_all: dict[str, Any] = {"dtype": problem.dtype, "head": problem.head, "head_v": problem.head_v}
    of_all["left"], of_all["right"] = problem.bounds
    config: ForwardConfig | BackwardConfig
    if problem.kind == "forward":
        config = ForwardConfig(**of_all, **settings, warpgroups=settings["tile_m"] // 64)
    else:
        config = BackwardConfig(**of_all, **settings, shares_keys=settings["tile_k"] == 64)
    if not config.smem.fits:
        raise ValueError(f"the stages of a kernel must fit into shared memory, got {candidate}")
    return AttentionChoice(config, is_persistent)


def rules_choice(problem: Problem) -> AttentionChoice:
    """Return the choice of the rules of `cutepy.kernels.attention.choice`."""
    of_all = problem.dtype, problem.head, problem.head_v
    left, right = problem.bounds
    config: ForwardConfig | BackwardConfig
    if problem.kind == "forward":
        group = problem.heads // problem.kv_heads
        config = choose_batches(*of_all, problem.queries, group, left=left, right=right)
    else:
        is_short = are_few(problem.queries, right=right)
        config = choose_backward(*of_all, left=left, right=right, is_short=is_short)
        config = gradients_by_counter(config, problem.queries)
    if isinstance(config, BackwardConfig):
        width = {"gradients_of": max(problem.head, problem.head_v)}
    else:
        width = {"width": width_of_batches(config)}
    return AttentionChoice(config, config.dynamic or not has_cta_each(problem.queries, is_uneven=right, **width))


def shortened(problem: Problem, candidate: Settings, rules: ForwardConfig | BackwardConfig) -> dict[str, Any]:
    """Describe a candidate of 16 bits with the shortest ends of tiles that fit into shared memory.

    A counter deals tiles, and heads that share keys are packed, where the rules' configuration has it so.
    """
    config = chosen_of(problem, candidate).config
    if not isinstance(config, ForwardConfig) or config.bits != 16:
        return dict(candidate)
    each: dict[str, Any] = {"divides_fast": True, "masks_parts": True}
    each["o_stages"] = -(-config.head_v // config.out_stages[0])
    if isinstance(rules, ForwardConfig) and rules.packed > 1:
        each["packed"] = rules.packed
    if rules.dynamic and candidate["is_persistent"]:
        each["dynamic"] = True
    early = {"begins_early": True} if candidate["is_persistent"] and config.head_v <= 64 else {}
    for changes in ({**each, "q_stages": 2, **early}, each):
        if replace(config, **changes).smem.fits:
            return {**candidate, **changes}
    return dict(candidate)


def candidates(problem: Problem, most: int = MOST) -> list[dict[str, Any]]:
    """List the choice of the rules, then other candidates, those that compute fewest empty pairs first."""
    found: list[tuple[int, int, dict[str, Any]]] = []
    rows, columns = ("tile_m", "tile_n") if problem.kind == "forward" else ("tile_q", "tile_k")
    for point in (FORWARD if problem.kind == "forward" else BACKWARD).candidates(problem.settings):
        candidate: dict[str, Any] = dict(point)
        tile_rows, tile_columns = candidate[rows], candidate[columns]
        computed = -(-problem.queries // tile_rows) * tile_rows * -(-problem.keys // tile_columns) * tile_columns
        # Ten per cent are what else candidates differ by.
        found.append((10 * computed // (problem.queries * problem.keys), -tile_rows * tile_columns, candidate))
    ranked = (candidate for *_, candidate in sorted(found, key=lambda each: each[:2]))
    rules = rules_choice(problem)
    by_rules = candidate_of(rules)
    others = (shortened(problem, candidate, rules.config) for candidate in ranked if _has_kernel(problem, candidate))
    return [by_rules, *(candidate for candidate in others if candidate != by_rules)][:most]


def _has_kernel(problem: Problem, candidate: Settings) -> bool:
    try:
        chosen_of(problem, candidate)
    except ValueError:
        return False
    return True


def tuned(device: str, problem: Problem) -> AttentionChoice | None:
    """Look up the winner for a kind of GPU; None if there is none, or if its configuration is no longer valid."""
    found = winner(device, NAME, problem.settings)
    if found is None:
        return None
    try:
        return chosen_of(problem, found.candidate)
    except (ValueError, TypeError, KeyError):  # a winner of another version's kernel
        return None


def check(problem: Problem) -> str | None:
    """Describe the fault of a problem; None if there are kernels of it.

    Examples
    --------
    >>> check(Problem("backward", "float8_e4m3fn", 1, 64, 64, 1, 1, 64, 64))
    'float8_e4m3fn has no gradients'
    """
    if problem.dtype not in DTYPES:
        return f"the type must be one of {', '.join(DTYPES)}, got {problem.dtype!r}"
    if problem.kind == "backward" and problem.dtype == "float8_e4m3fn":
        return "float8_e4m3fn has no gradients"
    extents = problem.batch, problem.queries, problem.keys, problem.heads, problem.kv_heads
    if min(extents) < 1:
        return f"extents must be positive, got {', '.join(map(str, extents))}"
    if problem.heads % problem.kv_heads:
        return f"the heads of q must be a multiple of those of k and v, got {problem.heads} and {problem.kv_heads}"
    for head in (problem.head, problem.head_v):
        if not 16 <= head <= LARGEST_HEAD or head % 16:
            return f"rows must have a multiple of 16 elements up to {LARGEST_HEAD}, got {head}"
    return None
