"""Every launch is recorded: see `tests.sim.coverage`."""

from tests.sim.conftest import _ptx_coverage as _ptx_coverage
