"""Products of few rows without tensor cores, bound by the bandwidth at which B is read.

`config` and `choice` are plain Python; `gemv` loads torch when it is first asked for, and the DSL only where it must
compile. The oracle is the GEMM's, `cutepy.kernels.gemm.reference`.
"""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use
from cutepy.kernels.gemv.choice import select_gemv as select_gemv
from cutepy.kernels.gemv.config import GemvConfig as GemvConfig

if TYPE_CHECKING:
    from cutepy.kernels.gemv.op import gemv as gemv

__all__ = ["GemvConfig", "gemv", "select_gemv"]

__getattr__, __dir__ = loaded_on_use(__name__, {"gemv": "op"})
