"""Tiles of an exported GEMM, with a linear cost model.

In process there are more to choose from (`cutepy.kernels.gemm.heuristic`); each here is a kernel in the extension.
"""

from dataclasses import dataclass

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.signature import GemmSignature


@dataclass(frozen=True)
class ExportedTile:
    """Tile of an exported GEMM, with its time on an SM in microseconds: a constant, and for 128 bytes of K.

    `cluster` CTAs share operands; `k_spans` times 128 bytes of K make a stage. The costs are least-squares fits to
    device times of 27 fp16 problems (K-major operands, row-major result) on an H200, 2026-11-21, by the protocol of
    `docs/benchmarks.md`. With these nine, the choice was on average 3% slower than the best of 23 measured tiles for
    the problem. Small tiles gain up to 15% from longer stages: TMA then reads longer rows.
    """

    tile_m: int
    tile_n: int
    cluster: int
    k_spans: int
    tile_us: float
    span_us: float

    def config(self, signature: GemmSignature, cluster_m: int, cluster_n: int) -> GemmConfig:
        """Return the kernel configuration with this tile."""
        return GemmConfig(
            signature=signature,
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=self.k_spans * 1024 // signature.operand_bits,
            warpgroups=self.tile_m // 64,
            cluster_m=cluster_m,
            cluster_n=cluster_n,
        )

    def cluster_mn(self, m: int, n: int) -> tuple[int, int]:
        """Return the cluster: two rows of tiles share B; with a single row, columns share A."""
        if m > self.tile_m:
            return self.cluster, 1
        return 1, self.cluster if n > self.tile_n else 1

    def expected_us(self, m: int, n: int, k: int, operand_bits: int, sm_count: int, batch: int) -> float:
        """Estimate the time of a batch of products: waves of clusters over the SMs, each at the cost of a tile."""
        cluster_m, cluster_n = self.cluster_mn(m, n)
        clusters = -(-m // (self.tile_m * cluster_m)) * -(-n // (self.tile_n * cluster_n)) * batch
        waves = -(-clusters // (sm_count // (cluster_m * cluster_n)))
        return waves * (self.tile_us + -(-k * operand_bits // 1024) * self.span_us)


TILES = (
    ExportedTile(128, 256, 2, 1, 1.71, 0.687),
    ExportedTile(128, 224, 2, 1, 1.39, 0.614),
    ExportedTile(128, 192, 2, 1, 1.13, 0.540),
    ExportedTile(128, 160, 1, 1, 0.76, 0.476),
    ExportedTile(128, 128, 2, 1, 0.65, 0.391),
    ExportedTile(128, 96, 1, 1, 0.35, 0.347),
    ExportedTile(64, 128, 2, 1, 0.42, 0.239),
    ExportedTile(64, 64, 2, 2, 0.24, 0.160),
    ExportedTile(64, 32, 1, 2, 0.22, 0.147),
)
