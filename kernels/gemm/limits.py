"""Limits of a configuration: each check refuses one field, with the values that it may have and the reason."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from cutepy.device import rules
from cutepy.kernels.gemm.elements import SUMS
from cutepy.kernels.gemm.loading import find_loading
from cutepy.kernels.gemm.output_signature import OutputSignature
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch

MOST_EXTENT = 2**31 - 2**10
"""Largest extent of a matrix: the rows of a cluster's last tiles must fit in 32 bits."""

_MAX_CONSUMER_WARPGROUPS, _MAX_CONSUMERS = 3, 2
_MAX_CLUSTER = 4


def check_extents(m: int, n: int, k: int, batch: int) -> None:
    """Check that a product's extents are positive and within the kernel's 32-bit counters.

    Raises
    ------
    TypeError
        If one is no integer.
    ValueError
        If one is not positive, or more than a kernel counts.
    """
    if not all(hasattr(extent, "__index__") for extent in (m, n, k, batch)):
        raise TypeError(f"m, n, k and batch must be integers, got {m!r}, {n!r}, {k!r}, {batch!r}; round them")
    if min(m, n, k, batch) < 1:
        raise ValueError(
            f"m, n, k and batch must be positive, got {m}, {n}, {k}, {batch}; an empty product needs no kernel"
        )
    for name, extent in (("m", m), ("n", n), ("k", k)):
        if extent > MOST_EXTENT:
            raise ValueError(
                f"{name} must be at most {MOST_EXTENT}, which kernels count in 32 bits, got {extent}; split it"
            )


def check_consumers(warpgroups: int, consumers: int, split_k: int, promotes: bool) -> None:
    """Check the number of consumers, and of warpgroups of each.

    Ping-pong consumers and promotion exclude each other: with promotion one warpgroup of a tile promotes while the
    other multiplies.

    Raises
    ------
    ValueError
        If the kernel can't have them.
    """
    for name, count, most in (
        ("warpgroups", warpgroups, _MAX_CONSUMER_WARPGROUPS),
        ("consumers", consumers, _MAX_CONSUMERS),
    ):
        if not 1 <= count <= most:
            raise ValueError(f"{name} must be from 1 to {most}, got {count}")
    if warpgroups * consumers > _MAX_CONSUMER_WARPGROUPS:
        raise ValueError(
            f"warpgroups * consumers must be at most {_MAX_CONSUMER_WARPGROUPS}, which have "
            f"{rules.register_budget(_MAX_CONSUMER_WARPGROUPS).consumer} registers a thread, got {warpgroups} * "
            f"{consumers}; use one warpgroup for each consumer"
        )
    if consumers > 1 and split_k > 1:
        raise ValueError(f"ping-pong consumers need split_k 1, got {split_k}; use 1 consumer")
    if consumers > 1 and promotes:
        raise ValueError(
            f"consumers must be 1 where sums are promoted, got {consumers}; use 1 consumer of 2 warpgroups"
        )


def check_stream(stream_k: bool, consumers: int, split_k: int, sum_dtype: str) -> None:
    """Check that a configuration can use stream-K for the last tiles.

    Raises
    ------
    ValueError
        If K is split otherwise, consumers take tiles in turn, or sums are integers.
    """
    if not stream_k:
        return
    if sum_dtype != "float32":
        raise ValueError(f"stream_k needs float32 sums, got {sum_dtype}; leave it out, or use split_k")
    for name, count in (("split_k", split_k), ("consumers", consumers)):
        if count > 1:
            raise ValueError(f"stream_k needs {name} 1, got {count}")


def check_dynamic(dynamic: bool, stream_k: bool) -> None:
    """Check that a configuration can schedule tiles dynamically.

    Raises
    ------
    ValueError
        If CTAs are to share the K of the last tiles, which are told beforehand.
    """
    if dynamic and stream_k:
        raise ValueError("dynamic and stream_k are two schedules of the tiles, got both; use one")


def check_depths(stages: int, epi_stages: int, c_stages: int, band_rows: int, kind: OutputSignature) -> None:
    """Check the numbers of stages of A and B, of D and of C, where 0 means chosen automatically.

    Raises
    ------
    ValueError
        If nothing could be moved while something is used, or bands of tiles have no rows.
    """
    if epi_stages and epi_stages < 2:
        raise ValueError(f"epi_stages must be at least 2, got {epi_stages}: one is filled while one is sent")
    if stages and stages < 2:
        raise ValueError(f"stages must be at least 2, one to load while one is multiplied, got {stages}")
    if bool(kind.added) != bool(c_stages):
        raise ValueError(f"c_stages must be 0 without C and positive with it, got {c_stages}")
    if band_rows < 1:
        raise ValueError(f"band_rows must be at least 1, got {band_rows}")


def _promoted_beside(kind: GemmSignature) -> int:
    """Return the registers that an epilogue needs beside promoted sums.

    Measured as spills of ptxas 13.0 with the tiles that are chosen from: operands that are loaded ahead, fp32 results,
    which are not packed, and scales for each column.
    """
    assert kind.scale_rows is not None
    ahead = len(kind.graph.operands) - len(kind.added)
    return 12 * ahead + 8 * (kind.out_bits == 32) + 8 * (kind.scale_rows[1] == 1)


def check_registers(
    tile_mnk: tuple[int, int, int], warpgroups: int, consumers: int, buffers: int, kind: GemmSignature
) -> int:
    """Check a thread's registers, and return the sets of accumulators for promotion: 0 without promotion.

    Raises
    ------
    ValueError
        If they don't.
    """
    if kind.scale_rows is None:
        if buffers:
            raise ValueError(f"buffers must be 0 where sums are not promoted, got {buffers}")
        rules.check_accumulators(tile_mnk[:2], warpgroups, consumers)
        return 0
    beside = _promoted_beside(kind)
    buffers = buffers or rules.fitting_buffers(tile_mnk, warpgroups, kind.scale_rows, beside)
    rules.check_promotion(tile_mnk, warpgroups, buffers, kind.scale_rows, beside)
    return buffers


def check_tile(
    tile_mnk: tuple[int, int, int], epi_n: int, warpgroups: int, kind: GemmSignature, dynamic: bool = False
) -> None:
    """Check the extents of an output tile and of an epilogue subtile, whose columns may be interleaved.

    Raises
    ------
    ValueError
        If the kernel can't have them.
    """
    (tile_m, tile_n, tile_k), widest = tile_mnk, kind.graph.widest
    rows, instruction_k = 64 * warpgroups, 256 // kind.operand_bits
    if kind.sum_dtype == SUMS and tile_n % 16 and tile_n not in (8, 24):
        raise ValueError(f"tile_n must be 8, 24 or a multiple of 16 for integers, as wgmma's N is, got {tile_n}")
    for name, value, unit, why in (
        ("tile_m", tile_m, rows, "each consumer warpgroup multiplies 64 rows at a time"),
        ("epi_n", epi_n, 8, "a matrix of stmatrix has 8 columns"),
        ("tile_n", tile_n, epi_n, f"the epilogue writes whole subtiles of epi_n columns{_fitting(tile_n, widest)}"),
        ("tile_n", tile_n, 8, "wgmma's N is a multiple of 8"),
        ("epi_n", epi_n, 8 * widest, "8 columns are left where columns are interleaved"),
        ("tile_k", tile_k, instruction_k, "one wgmma takes 32 bytes of K"),
    ):
        if value <= 0 or value % unit:
            raise ValueError(f"{name} must be a positive multiple of {unit}, got {value}: {why}")
    find_loading(kind, tile_mnk, dynamic)
    if tile_n > 256:
        raise ValueError(f"tile_n must be at most 256, the largest N of a wgmma, got {tile_n}")


def _fitting(tile_n: int, widest: int) -> str:
    """Describe the subtile widths that fit a tile, for an error."""
    fitting = [columns for columns in range(8 * widest, tile_n + 1, 8 * widest) if tile_n % columns == 0]
    return f"; with this one use an epi_n of {', '.join(map(str, fitting))}" if fitting else ""


def check_cluster(cluster_m: int, cluster_n: int, split_k: int, by_threads: tuple[bool, bool] = (False, False)) -> None:
    """Check the cluster, where threads load A or B for their own CTA only.

    Raises
    ------
    ValueError
        If the kernel can't have them.
    """
    for name, extent in (("cluster_m", cluster_m), ("cluster_n", cluster_n)):
        if extent not in (1, 2, 4):
            raise ValueError(f"{name} must be 1, 2 or 4, got {extent}")
    for name, extent, operand, alone in (
        ("cluster_n", cluster_n, "A", by_threads[0]),
        ("cluster_m", cluster_m, "B", by_threads[1]),
    ):
        if alone and extent > 1:
            raise ValueError(
                f"{name} must be 1 where threads load {operand}, got {extent}: CTAs along it share tiles of "
                f"{operand} by TMA multicast"
            )
    if cluster_m * cluster_n > _MAX_CLUSTER:
        raise ValueError(
            f"a cluster must have at most {_MAX_CLUSTER} CTAs, got {cluster_m} x {cluster_n}: "
            "larger ones leave SMs of a GPC idle"
        )
    if split_k not in (1, 2, 4, 8):
        raise ValueError(f"split_k must be 1, 2, 4 or 8, got {split_k}")
    if cluster_m * cluster_n * split_k > rules.PORTABLE_CLUSTER_CTAS:
        raise ValueError(
            f"a cluster must have at most {rules.PORTABLE_CLUSTER_CTAS} CTAs, got {cluster_m} x "
            f"{cluster_n} x {split_k}; split K, or share operands, among fewer"
        )


def check_shared(tile_mnk: tuple[int, int, int], cluster_mn: tuple[int, int], kind: GemmSignature) -> None:
    """Check that A and B tiles divide among the CTAs that multicast them.

    Raises
    ------
    ValueError
        If not.
    """
    (tile_m, tile_n, tile_k), (cluster_m, cluster_n) = tile_mnk, cluster_mn
    for rows, major, peers in ((tile_m, kind.a_major, cluster_n), (tile_n, kind.b_major, cluster_m)):
        tile = sm90.StagedTile((rows, tile_k), 1, kind.operand_bits, int(major == "k"))
        rules.check_multicast(tile.lines, tile.line_bytes, peers)


def check_types(config: Any, bools: Collection[str] = ()) -> None:  # noqa: ANN401
    """Check the types of a configuration's fields: bools are bools, all others but the signature are ints.

    Raises
    ------
    TypeError
        If one isn't.
    """
    for field in fields(config):
        value, kind = getattr(config, field.name), bool if field.name in bools else int
        if field.name != "signature" and type(value) is not kind:
            raise TypeError(f"{field.name} must be {'a bool' if kind is bool else 'an int'}, got {value!r}")


def check_room(config: Any, fitting: int) -> None:  # noqa: ANN401
    """Check that the stages of A and B asked for fit in shared memory.

    Raises
    ------
    ValueError
        If it hasn't, or not for two.
    """
    if fitting < 2:
        ring, epilogue = config.stage_bytes, config.epilogue_bytes
        shorten = "fewer epi_stages or c_stages" if epilogue > 2 * ring else "a smaller tile"
        raise ValueError(
            f"stages must be at least 2, one to load while one is multiplied, and there is room for "
            f"{fitting}: a stage of A and B takes {ring} bytes, the epilogue's "
            f"{config.epi_stages} + {config.c_stages} stages {epilogue} and the sums of {config.split_k - 1} "
            f"peers {config.exchange_bytes} of the {arch.SMEM_BYTES_PER_CTA} bytes of shared memory; use {shorten}"
        )
    if config.stages and not config.smem.fits:
        raise ValueError(
            f"{config.stages} stages of {config.stage_bytes} bytes and {config.epilogue_bytes} bytes for the epilogue "
            f"take {config.smem_bytes} bytes of shared memory, {config.smem_bytes - arch.SMEM_BYTES_PER_CTA} more "
            f"than the {arch.SMEM_BYTES_PER_CTA} of a block; use {fitting} stages"
        )
