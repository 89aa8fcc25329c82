"""The device code of the products of few rows: no tensor core, B streamed once through registers (traced).

A CTA computes `tile_m` rows of `tile_n` columns. Each warp multiplies its rows of B, or its part of their K
(`cutepy.device.dot_products`), and writes its sums to shared memory. Each thread then adds the sums of all warps, in
the order of the warps, for its elements, computes the graph of the epilogue, and stores. An element is a group of
neighbours where the epilogue splits columns. Operands of the graph are loaded before the products begin.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import reduce, rules, smem
from cutepy.device.dot_products import DotProducts
from cutepy.device.finish import SubtileEpilogue
from cutepy.device.fragment import ThreadColumns
from cutepy.device.overlap import follow_launch
from cutepy.kernels.gemm.kernel import Gemm
from cutepy.kernels.gemm.standard import StandardGemm
from cutepy.kernels.gemv.config import GemvConfig


class Streaming:
    """Mix-in that replaces the GEMM's main loop by dot products without tensor cores."""

    def __init__(self, config: GemvConfig):
        self.config, self.graph = config, config.signature.graph

    def launch(self, a, b, operands, results, sm_count, stream, scales=(None, None), workspace=None):
        """Launch a CTA for each tile; CTAs that share rows of B have neighbouring indices, so that L2 serves them."""
        config = self.config
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        rows, columns = (cute.ceil_div(cute.size(x, mode=[0]), y) for x, y in ((a, config.tile_m), (b, config.tile_n)))
        ctas = rows * columns
        self.kernel(a, b, operands, results, rows, rules.fills(ctas, sm_count)).launch(
            grid=(ctas, 1, 1),
            block=(config.threads, 1, 1),
            min_blocks_per_mp=config.ctas_per_sm,
            preferred_smem_carveout=config.smem_percent,
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        operands: tuple,
        results: tuple,
        rows: cutlass.Int32,
        lets_next_begin: cutlass.Boolean,
    ):
        """Compute one tile."""
        config = self.config
        follow_launch(lets_next_begin)
        tidx, cta = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        row, column = cta % rows * config.tile_m, cta // rows * config.tile_n
        sums = smem.share(config.smem, sums=Float32)["sums"]
        shared = cute.make_tensor(sums, cute.make_ordered_layout(config.sums, order=(2, 1, 0)))
        m, n = cute.size(a, mode=[0]), cute.size(b, mode=[0])
        finish = SubtileEpilogue(self.graph, ThreadColumns(self.graph.widest), operands, m, n)
        places = self.places(tidx)
        loaded = [self.load_beside(finish, row + down, column + along) for down, along, _ in places]

        products = DotProducts(a, b, config.tile_m, config.columns, config.unroll, config.k_warps)
        strip, part = warp // config.k_warps, warp % config.k_warps
        own = products.multiply(row, column + strip * config.columns, part)
        value, index = reduce.warp_scatter_reduce([own[v] for v in range(cute.size(own))], reduce.add)
        # Values are (tile_m, columns), rows first; lanes whose higher bits are 0 have each of them once.
        if cute.arch.lane_idx() < cute.size(own):
            shared[part, index % config.tile_m, strip * config.columns + index // config.tile_m] = value
        cute.arch.sync_threads()
        for place, (fragments, tiles) in zip(places, loaded, strict=True):
            self.end(finish, shared, place, (row, column), fragments, tiles, results)

    def places(self, tidx):
        """List the coordinates in the tile whose columns a thread finishes, each with a predicate."""
        config, width = self.config, self.graph.widest
        across = config.tile_n // width
        count = config.tile_m * across
        found = []
        for first in range(0, count, config.threads):
            index = tidx + first
            found.append((index // across, index % across * width, index < count))
        return found

    def load_beside(self, finish, row, column):
        """Load the graph's operands for columns of a row: values of rows and columns, and of tiles by their names."""
        fragments, tiles = finish.make_fragments(), {}
        finish.load(fragments, row, column)
        for operand, given in zip(self.graph.operands, finish.operands, strict=True):
            if operand.shape == "tile":
                count = self.graph.widest // operand.width
                tiles[operand.name] = values = cute.make_rmem_tensor(count, given.element_type)
                # Results beyond the last row or column are never stored, so the last one's values will do there.
                last = [cute.size(given, mode=[mode]) - 1 for mode in (0, 1)]
                for slot in range(count):
                    along = cutlass.min(column // operand.width + slot, last[1])
                    values[slot] = given[cutlass.min(row, last[0]), along]
        return fragments, tiles

    @cute.jit
    def end(self, finish, shared, place, corner, fragments, tiles, results):
        """Sum the warps' partial sums for columns of a row, compute the graph, and store its results."""
        down, along, exists = place
        width = self.graph.widest
        # An element with a false predicate is never stored, so another's sums will do there.
        down = cutlass.min(down, self.config.tile_m - 1)
        totals = cute.make_rmem_tensor(width, Float32)
        for slot in cutlass.range_constexpr(width):
            total = shared[0, down, along + slot]
            for part in cutlass.range_constexpr(1, self.config.k_warps):
                total = total + shared[part, down, along + slot]
            totals[slot] = total
        row, column = corner[0] + down, corner[1] + along
        evaluated = finish.compute(totals, fragments, tiles, row, column)
        if exists & (row < finish.m) & (column < finish.n):
            for index, result in enumerate(results):
                self.store(finish.result(evaluated, index), result, row, column)

    def store(self, values, result, row, column):
        """Convert values of neighbouring columns, 8-bit floats in fours, and store them."""
        kind = result.element_type
        count = len(values)
        wide = cute.make_rmem_tensor(count + -count % 4, Float32)
        wide.fill(0.0)
        for slot, value in enumerate(values):
            wide[slot] = value
        narrow = cute.make_rmem_tensor(wide.shape, kind)
        narrow.store(wide.load().to(kind))
        first = column // (self.graph.widest // count)
        for slot in range(count):
            result[row, first + slot] = narrow[slot]


class Gemv(Streaming, Gemm):
    """GEMV with an epilogue graph: `Gemm`'s call for few rows of A."""


class StandardGemv(Streaming, StandardGemm):
    """D = activation(A B^T + C + bias) for few rows of A: `StandardGemm`'s call."""
