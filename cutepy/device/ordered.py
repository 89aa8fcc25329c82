"""Additions to global memory in a fixed order: a counter for each place tells whose turn it is (traced).

Sums of floating-point numbers are the same from run to run where their terms are added in one order. CTAs that add to a
place take turns: the one of rank n adds when the place's counter is n, and raises it once TMA has added. Counters are 0
before a launch.

No CTA waits for ever if ranks follow the order in which a scheduler deals its work: a unit of work waits only for units
with a lower index, CTAs take their units by growing index, and all CTAs of a launch are on the GPU at one time. Of the
units that are not finished, that with the lowest index waits for none.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device.epilogue import STORE_WARP


@dataclass(frozen=True)
class AdditionOrder:
    """Order of additions to places in global memory: the threads of a stage wait until all lower ranks have added.

    Attributes
    ----------
    counters : Tensor, (places, ...), int32
    warp : Int32
        Index among the warps that fill the stage; the first one sends (`epilogue.Sink`).
    """

    counters: cute.Tensor
    warp: cutlass.Int32

    def _counter(self, place):
        return self.counters.iterator + cute.crd2idx(place, self.counters.layout)

    @cute.jit
    def wait(self, place, rank):
        """Wait, in the warp that sends, until all of lower rank have added to a place."""
        if self.warp == STORE_WARP:
            counter = self._counter(place)
            if cute.arch.lane_idx() == 0:
                count = cute.arch.load(counter, cutlass.Int32, sem="acquire", scope="gpu")
                while count != rank:
                    count = cute.arch.load(counter, cutlass.Int32, sem="acquire", scope="gpu")
            cute.arch.sync_warp()

    @cute.jit
    def pass_on(self, place, rank):
        """Wait until the additions that this warp has sent are complete, and let the next rank add to the place."""
        if self.warp == STORE_WARP:
            cute.arch.cp_async_bulk_wait_group(0, read=False)
            cute.arch.sync_warp()
            counter = self._counter(place)
            if cute.arch.lane_idx() == 0:
                cute.arch.store(counter, cutlass.Int32(rank + 1), sem="release", scope="gpu")
