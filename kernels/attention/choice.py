"""Tiles of attention, by rules: each follows from registers, shared memory, or a measurement that it names."""

import math
from dataclasses import replace
from typing import Any

from cutepy.kernels.attention.config import NO_SCORING, BackwardConfig, ForwardConfig, ScoreSettings

LARGEST_HEAD = 256
"""Widest rows of Q, K and V: with wider ones O's, or dK's, accumulators don't fit into registers."""
DECODE_ROWS = 64
"""Rows of queries of a tile that waits for memory rather than for products."""
INVARIANT_SPLITS = 8
"""Parts of the keys where results must not depend on what else is in a batch."""
LONG = 1024
"""Mean queries of sequences that fill tiles by themselves."""
WIDE = 192
"""Rows wider than this leave room for 64 keys in two stages."""
SHORT = 1024
"""Queries of which CTAs end too soon for their starts to hide behind others' work."""
FEWEST = 512
"""Queries whose gradients take small tiles without a diagonal too; their windows and rows of 128 no counter deals."""


def choose_forward(dtype: str, head: int, head_v: int, queries: int, *, left: bool, right: bool) -> ForwardConfig:
    """Choose the tiles of a forward kernel.

    - O takes `head_v` / 2 registers of a consumer thread, and S `tile_n` / 2: of 240 with two warpgroups, or of 160.
    - Rows of 64 leave room for a third warpgroup: 192 queries share the tiles of keys (an H200, 2026-11-28, bf16, 16k
      tokens of 4k: 502 TFLOP/s, 460 with two). Few queries fill smaller tiles better (causal, 512: 187, and 174).
    - Rows of 128 take 128 keys: with 176 loops over few tiles are less even (512 queries: 483, and 495 TFLOP/s).
    - Wider rows take as many keys as shared memory has room for, in two stages.
    - Of 8 bits, P takes half of the registers, and a tile half of the memory: tiles are FlashAttention's, whose keys
      are multiples of 32. Rows of 256 leave room for one stage of V as it is loaded. Few queries take 160 keys (an
      H200, 2026-11-29, rows of 128, 512 tokens: 563 TFLOP/s, and 475 with 224; causal 295, and 233).

    Examples
    --------
    >>> config = choose_forward("bfloat16", 64, 64, 4096, left=False, right=True)
    >>> config.tile_m, config.tile_n, config.warpgroups
    (192, 128, 3)
    >>> [choose_forward("float8_e4m3fn", n, n, 4096, left=False, right=False).tile_n for n in (64, 128, 192, 256)]
    [160, 224, 160, 128]
    """
    tile_m, tile_n, warpgroups, unit = 128, 128, 2, 16
    if dtype == "float8_e4m3fn":
        unit = 32
        if max(head, head_v) <= 64 and queries > SHORT:
            tile_m, tile_n, warpgroups = 192, 160, 3
        elif max(head, head_v) <= 128 and queries > SHORT:
            tile_n = 192 if left and right else 224  # a mask at both ends takes some of the registers
        elif max(head, head_v) <= 192:
            tile_n = 160
    elif max(head, head_v) <= 64 and queries > SHORT:
        tile_m, warpgroups = 192, 3
    elif max(head, head_v) > 192:
        tile_n = 64
    elif max(head, head_v) > 128:
        tile_n = 128 if head_v <= 128 else 96
    config = ForwardConfig(
        dtype=dtype,
        head=head,
        head_v=head_v,
        tile_m=tile_m,
        tile_n=tile_n,
        warpgroups=warpgroups,
        left=left,
        right=right,
    )
    if config.transposes and not config.smem.fits:
        config = replace(config, loaded=1)
    while not config.smem.fits:  # O of an odd number of stages takes more
        config = replace(config, tile_n=config.tile_n - unit)
    return config


def choose_batches(
    dtype: str, head: int, head_v: int, queries: int, group: int, *, left: bool, right: bool
) -> ForwardConfig:
    """Choose the tiles of batches of equal matrices, `group` heads of Q to one of K, without functions of the scores.

    Rows of 64 with a window take 128 queries, since each row of a tile adds keys that the others don't see, or 192 rows
    of 24 queries and eight heads (an H200, 2026-12-01, bf16, 16k tokens of 4k, a window of 1,024 keys: 327 us, 362 with
    192 queries; eight heads to one of K 302, 353 with 192 queries).

    Examples
    --------
    >>> config = choose_batches("bfloat16", 64, 64, 4096, 8, left=False, right=True)
    >>> config.dynamic, config.packed
    (True, 8)
    >>> [choose_batches("bfloat16", 64, 64, 512, n, left=True, right=True).tile_m for n in (1, 8)]
    [128, 192]
    """
    config = choose_forward(dtype, head, head_v, queries, left=left, right=right)
    if config.bits == 8:
        return for_batches_of_bytes(config, queries)
    if left and right and max(head, head_v) <= 64:
        warpgroups = 3 if heads_together(group) > 1 else 2
        config = replace(config, tile_m=64 * warpgroups, warpgroups=warpgroups)
    return of_shared_heads(by_counter(for_batches(config, queries), queries), queries, group)


def for_batches(config: ForwardConfig, queries: int) -> ForwardConfig:
    """Return a configuration of 16-bit operands for batches of equal matrices, without functions of the scores.

    Gains are those of an H200, 2026-11-30, bf16, 16k tokens, of 512, 1k, 4k and 16k queries.

    - Rows of more than 64, to 128: the next tile's Q is loaded early, O leaves at once, tiles are found by fast
      divisors, and the first tile of keys is masked only where it must be (1.21, 1.13, 1.05, 1.04; causal 1.12, 1.09,
      1.03, 1.03).
    - Rows of 64: so too, and without a window the next tile's first product is issued before O is stored (1.06 of 4k
      queries, 1.02 of 16k); few queries have three stages of keys (1.22 and 1.12; causal 1.17 and 1.12). Many, causal,
      have a CTA each, which has no next tile.
    - Rows of 256: few queries have four stages of O (1.02; causal, a CTA each, 1.08). Many stage O where Q was, which
      makes room for 80 keys (causal 1.05). If they see all keys, O is rescaled beside the products, and warpgroups
      take no turns: 1.02 of 4k queries, and 1.08 of 16k.

    Examples
    --------
    >>> config = choose_forward("bfloat16", 64, 64, 4096, left=False, right=False)
    >>> for_batches(config, 4096).begins_early, for_batches(config, 512).stages
    (True, 3)
    """
    widest = max(config.head, config.head_v)
    if config.bits != 16:
        return config
    columns, _ = config.out_stages
    whole, lean = -(-config.head_v // columns), {"divides_fast": True, "masks_parts": True}
    changes: dict[str, Any] = {}
    if widest <= 64:
        has_window = config.left and config.right
        if has_window or not has_cta_each(queries, is_uneven=config.right):
            changes = {**lean, "q_stages": 2, "o_stages": whole, "begins_early": not has_window}
            changes |= {"stages": 3} if queries <= SHORT and not has_window else {}
    elif widest <= 128:
        changes = {**lean, "q_stages": 2, "o_stages": whole}
    elif config.head != config.head_v or config.head % columns:
        return config
    elif widest > WIDE and queries <= SHORT:
        changes = {"o_stages": 4 if whole % 4 == 0 else whole, **(lean if config.right else {})}
    elif widest > WIDE and (config.right or not config.left):
        changes = {**lean, "o_over_q": True, "o_stages": whole, "tile_n": config.tile_n + 16}
        changes |= {} if config.right else {"rescales_late": True, "ordered": False}
    changed = replace(config, **changes)
    return changed if changed.smem.fits else config


def for_batches_of_bytes(config: ForwardConfig, queries: int) -> ForwardConfig:
    """Return a configuration of 8-bit operands for batches of equal matrices, without functions of the scores.

    The next tile's Q is loaded early, tiles are found by fast divisors, the first tile of keys is masked only where it
    must be, and a counter deals tiles that a mask cuts. Figures are those of an H200, 2026-12-01, 16k tokens, in
    microseconds, with FlashAttention 3's in parentheses.

    - Rows of 64: 192 queries share 128 keys, O leaves at once, and the next tile's first product is issued before (512
      queries 143, 202 without; 4k 899 (902)). A window takes 128 queries (4k, of 1,024 keys: 304, 341 without).
    - Rows of more than 64, to 128: few queries, and windows, take 128 keys (512: 93 (121), 134 without; causal 75
      (101)). Others take 192, as O then leaves at once (causal, 4k 337 (351), 16k 1224 (1221)), or 224, with the next
      product before it (4k 623 (639), 16k 2378 (2493)).
    - To 192: few queries, and windows, take 128 keys and two stages of V as it is loaded (512: 83, 110 without).
    - Rows of 256: O is staged where Q was, which makes room for two stages of V as it is loaded (16k 1918 (1908), 2302
      without; 4k 514 (475), 570 without), but where queries are few or a window begins early (512: 87 (83)).

    Examples
    --------
    >>> for head in (64, 128, 256):
    ...     for queries in (512, 4096):
    ...         config = choose_forward("float8_e4m3fn", head, head, queries, left=False, right=True)
    ...         config = for_batches_of_bytes(config, queries)
    ...         print(head, queries, config.tile_m, config.tile_n, config.dynamic, config.o_over_q)
    64 512 192 128 True False
    64 4096 192 128 True False
    128 512 128 128 True False
    128 4096 128 192 True False
    256 512 128 128 True False
    256 4096 128 128 False True
    """
    widest, columns = max(config.head, config.head_v), config.out_stages[0]
    at_once = {"o_stages": -(-config.head_v // columns)}
    is_narrow = (config.left and config.right) or (queries <= SHORT and widest > 64)
    changes: dict[str, Any] = {"divides_fast": True, "masks_parts": True, "dynamic": config.right}
    if widest <= 64 and not is_narrow:
        changes |= {"tile_m": 192, "warpgroups": 3, "tile_n": 128, "q_stages": 2, "begins_early": True, **at_once}
    elif widest <= 128 and is_narrow:
        changes |= {"tile_m": 128, "warpgroups": 2, "tile_n": 128, "q_stages": 2, **at_once}
    elif widest <= 128 and config.right:
        changes |= {"tile_n": 192, "q_stages": 2, **at_once}
    elif widest <= 128:
        changes |= {"q_stages": 2, **({"begins_early": True} if widest > 96 else {"tile_n": 192})}
    elif widest <= WIDE and is_narrow:
        changes |= {"tile_n": 128, "q_stages": 2, "loaded": 2}
    elif widest > WIDE and config.head != LARGEST_HEAD:
        changes |= {"dynamic": False}  # the dealer would spill
    elif widest > WIDE and not is_narrow and config.head_v == LARGEST_HEAD:
        changes |= {"loaded": 2, "o_over_q": True, "dynamic": False}
    changed = replace(config, **changes)
    return changed if changed.smem.fits else config


def by_counter(config: ForwardConfig, queries: int) -> ForwardConfig:
    """Return a configuration of `for_batches` whose CTAs take tiles by a counter, where that is faster.

    Causal, bf16, 16k tokens (an H200, 2026-11-30): rows of 64 gain 1.05 of 4k queries and 1.02 of 16k, rows of 128
    1.13 of 1k, 1.05 of 4k and 1.02 of 16k, rows of 256 1.17 of 512 and 1.11 of 1k. Others without a window lose up to
    9%. Windows gain (2026-12-01, 4k queries and 1,024 keys, rows of 128: 225 us, 281 with a CTA each, and 255 with a
    CTA an SM). The sanitizer's certificate does not cover what a counter deals.

    Examples
    --------
    >>> def is_dealt(head, queries):
    ...     config = choose_forward("bfloat16", head, head, queries, left=False, right=True)
    ...     return by_counter(for_batches(config, queries), queries).dynamic
    >>> [[is_dealt(head, queries) for queries in (512, 1024, 4096)] for head in (64, 128, 256)]
    [[False, False, True], [False, True, True], [True, True, False]]
    """
    widest = max(config.head, config.head_v)
    if not config.right:
        return config
    if config.left:
        is_dealt = queries > FEWEST
    elif widest <= 64:
        is_dealt = queries > SHORT
    elif widest <= 128:
        is_dealt = queries > FEWEST
    else:
        is_dealt = widest > WIDE and queries <= SHORT
    dealt = replace(config, dynamic=is_dealt)
    return dealt if dealt.smem.fits else config


def of_shared_heads(config: ForwardConfig, queries: int, group: int) -> ForwardConfig:
    """Return a configuration of batches that packs heads that share keys into rows, where that is faster.

    Where a mask cuts tiles: a tile of 192 rows then has 24 queries of `group` = 8 heads, so that a diagonal, or the
    ends of a window, hide fewer of its pairs (an H200, 2026-12-01, bf16, 16k tokens of 4k: rows of 64, causal, 562 us,
    and 617 unpacked; a window of 1,024 keys 302, and 353; rows of 256 417, and 425; 219, and 244). Rows of 128 gain
    nothing, and lose 5% of 512 queries.

    Examples
    --------
    >>> config = choose_forward("bfloat16", 64, 64, 4096, left=False, right=True)
    >>> of_shared_heads(config, 4096, 8).packed, of_shared_heads(config, 512, 8).packed
    (8, 1)
    """
    is_cut = config.right and (config.left or queries > SHORT)
    if not is_cut or 64 < max(config.head, config.head_v) <= WIDE:
        return config
    return replace(config, packed=heads_together(group))


def heads_packed(group: int, tokens: int, sequences: int) -> int:
    """Return how many heads that share keys have their queries as rows of one tile, of sequences of so many tokens.

    The last tile of a sequence is half empty: of a mean of 256 queries a head, a fifth of all rows of tiles of 128 are
    none's, and with eight heads a fortieth. A mean of `LONG` queries wastes 6% at most, whatever the heads are; then
    tiles of one head need no division by heads in their masks. Only what shapes tell is known here.

    Examples
    --------
    >>> heads_packed(8, 16384, 64), heads_packed(12, 16384, 64), heads_packed(8, 16384, 4), heads_packed(7, 512, 8)
    (8, 4, 1, 1)
    """
    return heads_together(group) if tokens <= LONG * max(sequences, 1) else 1


def heads_together(group: int) -> int:
    """Return how many heads of a group divide the rows of a warpgroup, so that none has only some of a query's.

    Examples
    --------
    >>> heads_together(8), heads_together(12), heads_together(7)
    (8, 4, 1)
    """
    return math.gcd(group, DECODE_ROWS)


def of_pages(config: ForwardConfig, page: int) -> ForwardConfig:
    """Return a configuration for keys in pages.

    Threads that copy them row by row need registers that three consumer warpgroups don't leave.

    Examples
    --------
    >>> config = choose_forward("bfloat16", 64, 64, 4096, left=False, right=True)
    >>> of_pages(config, 16).warpgroups, of_pages(config, 12).warpgroups
    (3, 2)
    """
    config = replace(config, page=page)
    return replace(config, tile_m=128, warpgroups=2) if config.copies_rows else config


def choose_decode(
    dtype: str,
    head: int,
    head_v: int,
    *,
    left: bool,
    right: bool,
    page: int,
    is_split: bool,
    scoring: ScoreSettings = NO_SCORING,
    result: str = "",
) -> ForwardConfig:
    """Choose the tiles of a forward kernel for at most 64 rows of queries, which waits for memory.

    One warpgroup multiplies. Tiles of keys have as many stages as fit, so that many bytes are on their way. Tables that
    are read for each score take 64 keys: of a bias of 128 ptxas (13.0) spills 20 bytes.

    Examples
    --------
    >>> config = choose_decode("bfloat16", 128, 128, left=False, right=False, page=64, is_split=True)
    >>> config.tile_m, config.tile_n, config.stages
    (64, 128, 3)
    """
    tile_n = 64 if max(head, head_v) > 128 or scoring.reads_each else 128
    candidates = (
        ForwardConfig(
            dtype=dtype,
            head=head,
            head_v=head_v,
            tile_m=64,
            tile_n=tile_n,
            warpgroups=1,
            stages=stages,
            left=left,
            right=right,
            ordered=False,
            page=page,
            is_split=is_split,
            stores_rows=is_split,
            overlaps=is_split,
            scoring=scoring,
            result=result,
        )
        for stages in range(6, 1, -1)
    )
    return next(config for config in candidates if config.smem.fits)


def choose_shared(dtype: str, head: int, head_v: int, queries: int, *, page: int, packed: int) -> ForwardConfig:
    """Choose the tiles of a forward kernel of keys that sequences share, with the queries of all as rows.

    Parts of O are float32, whose stages leave room for fewer keys of the widest rows. Two warpgroups multiply: three
    would have no register for the places of pages and of parts.

    Examples
    --------
    >>> [choose_shared("bfloat16", 128, 128, n, page=16, packed=8).tile_m for n in (8, 64)]
    [64, 128]
    """
    if queries * packed <= DECODE_ROWS:
        config = choose_decode(dtype, head, head_v, left=False, right=False, page=page, is_split=True)
        return replace(config, packed=packed, stores_rows=False)
    config = choose_forward(dtype, head, head_v, queries * packed, left=False, right=False)
    config = replace(config, tile_m=128, warpgroups=2, page=page, packed=packed, is_split=True)
    while not config.smem.fits:
        config = replace(config, tile_n=config.tile_n - 16)
    return config


def splits_of(tiles: int, most_keys: int, tile_n: int, sm_count: int) -> int:
    """Return into how many parts to split the keys of each tile, so that all SMs have one.

    The fewest whose CTAs fill the SMs nearly as evenly as any number does: 85% of the best share of SMs at work, as
    FlashAttention has it. Parts have at least two tiles of keys.

    Examples
    --------
    >>> splits_of(8, 8192, 128, 132), splits_of(100, 8192, 128, 132), splits_of(132, 8192, 128, 132)
    (14, 5, 1)
    """
    most = max(min(most_keys // (2 * tile_n), sm_count, 128), 1)
    if tiles >= 0.8 * sm_count:
        return 1
    waves = {splits: tiles * splits / sm_count for splits in range(1, most + 1)}
    shares = {splits: wave / -(-tiles * splits // sm_count) for splits, wave in waves.items()}
    return next(splits for splits, share in shares.items() if share >= 0.85 * max(shares.values()))


def choose_backward(
    dtype: str,
    head: int,
    head_v: int,
    *,
    left: bool,
    right: bool,
    scoring: ScoreSettings = NO_SCORING,
    is_ragged: bool = False,
    is_short: bool = False,
) -> BackwardConfig:
    """Choose the tiles of a backward kernel; `is_short` is of `are_few`.

    dK and dV take `head` / 2 and `head_v` / 2 registers of a consumer thread's 240, S and dP `tile_q` / 2 each.

    - Rows up to 64 leave room for 128 queries (an H200, 2026-11-28, bf16, 16k queries: 521 TFLOP/s, and 391 with 64),
      wider ones for 80 (571, and 534; causal 557, and 521), and for 64 where windows' masks need registers. Of few
      queries below a diagonal tiles of 64 compute fewer pairs that are masked (an H200, 2026-11-29, the kernel alone:
      512 queries 268 us, and 305 with 80; 1,024 372, and 386), and 512 queries are no multiple of 80 (2026-12-01, all
      keys seen: 464 us, and 477).
    - Functions of the scores need more registers, and lists of blocks have tiles that divide them: 64 queries. So do
      sequences (`is_ragged`) of which ptxas (13.0) spills some bytes with more: of float16 and wide rows, and of narrow
      ones with a window that has a beginning and no end. 80 queries need two parts of 64 columns of dQ.
    - With rows beyond 128 dK and dV would take 192 registers and more: warpgroups share 64 keys. Of rows of 256 these
      take 128 registers then, S and dP of 64 queries 16 each, and dQ 64 once S and dP are gone. Shared memory has K and
      V, 64 KiB, two stages of Q and of dO, 128 KiB, and 24 KiB of P and dS. There is no room for more queries, nor for
      dQ's 64 KiB: threads add it to memory by themselves. More keys would share what is loaded and added, but 128 take
      all of an SM's registers for dK and dV.
    - Rows of 192 and 128 take 96 keys, whose sums are transposed: a third less is added to dQ in memory, and dQ leaves
      by TMA (an H200, 2026-11-30, 512 queries: 461 us, and 535 with 64; causal 363, and 407).
    - So do rows beyond 64 where functions have gradients of their tables, which are computed beside all other sums: of
      a relative bias and rows of 128 ptxas (13.0) spills 100 bytes otherwise, and within a tanh 716.

    Examples
    --------
    >>> [choose_backward("bfloat16", head, head, left=False, right=False).tile_q for head in (64, 128, 256)]
    [128, 80, 64]
    """
    widest = max(head, head_v)
    shares_keys = widest > (64 if scoring.derived else 128)
    spills = is_ragged and (dtype == "float16" if widest > 64 else left and not right)
    if shares_keys or scoring.suffix or spills:
        tile_q = 64
    else:
        tile_q = 128 if widest <= 64 else 64 if left or is_short or head <= 64 else 80
    if (head, head_v) == (192, 128) and not (scoring.suffix or is_ragged or left):
        return BackwardConfig(
            dtype=dtype,
            head=head,
            head_v=head_v,
            tile_k=96,
            tile_q=64,
            right=right,
            transposes_sums=True,
            begins_with_k=True,
            overlaps=True,
        )
    return BackwardConfig(
        dtype=dtype,
        head=head,
        head_v=head_v,
        tile_k=64 if shares_keys else 128,
        tile_q=tile_q,
        shares_keys=shares_keys,
        left=left,
        right=right,
        scoring=scoring,
    )


def gradients_by_counter(config: BackwardConfig, queries: int) -> BackwardConfig:
    """Return a configuration of batches whose CTAs take tiles by a counter, where that is faster.

    Rows of more than 64, to 128, of few queries that see no key after their position (an H200, an elementwise kernel
    between, 512 queries: 366 us, and 389 with a CTA each; 2026-12-01, 1,024: 477, and 491 in each of two runs; 2,048
    745, and 752).
    """
    is_dealt = config.right and not config.left and not config.ordered and not config.scoring.suffix
    if is_dealt and 64 < max(config.head, config.head_v) <= 128 and queries <= SHORT:
        return replace(config, dynamic=True, begins_with_k=True, overlaps=True)
    return config


def are_few(queries: int, *, right: bool) -> bool:
    """Return whether gradients of a given number of queries take small tiles, of fewer where all keys are seen."""
    return queries <= (SHORT if right else FEWEST)


def ctas_of(queries: int, is_uneven: bool, sm_count: int, gradients_of: int = 0, width: int = 0) -> int:
    """Return how many CTAs to launch at most: one an SM, which take tiles in turn, or one a tile.

    Tiles below a diagonal, or of sequences, differ in length, and with a CTA each the hardware deals them out as others
    end (an H200, 2026-11-28, rows of 128, causal: 658 TFLOP/s of 16k queries, 577 with a CTA an SM). Short ones start
    faster one after another in a CTA (512 queries: 318, and 265), but for gradients of rows wider than 64, which take
    longer (2026-11-29, the kernel alone, 1,024 queries: 372 us, and 507; of rows of 64, 512 queries: 329, and 280), and
    for rows of 256 (2026-11-30, 512 queries: 1.07 of the speed). So have many queries of rows of 256 that see all keys.

    Parameters
    ----------
    gradients_of : int
        Width of the rows whose gradients are computed; 0 of a forward kernel.
    width : int
        That of batches of equal matrices, of a forward kernel (`width_of_batches`); 0 of others.

    Examples
    --------
    >>> ctas_of(4096, False, 132), ctas_of(512, True, 132), ctas_of(4096, True, 132) > 10**6
    (132, 132, True)
    """
    each = has_cta_each(queries, is_uneven=is_uneven, gradients_of=gradients_of, width=width)
    return 1 << 30 if each else sm_count


def width_of_batches(config: ForwardConfig) -> int:
    """Return the width by which `ctas_of` deals batches of equal matrices: 0 of 8 bits, as theirs makes no difference.

    Examples
    --------
    >>> of_types = (choose_forward(n, 256, 256, 4096, left=False, right=False) for n in ("float16", "float8_e4m3fn"))
    >>> [width_of_batches(config) for config in of_types]
    [256, 0]
    """
    return max(config.head, config.head_v) if config.bits > 8 else 0


def has_cta_each(queries: int, *, is_uneven: bool, gradients_of: int = 0, width: int = 0) -> bool:
    """Return whether each tile has a CTA of its own, as `ctas_of` says; parameters are its."""
    if not is_uneven:
        return width > WIDE and queries > SHORT
    return queries > SHORT or gradients_of > 64 or width > WIDE
