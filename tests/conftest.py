"""Fixtures and hooks of all tests: hypothesis profiles, and skips for absent hardware."""

import gc
import importlib.util
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import messages, tiers
from tests.sim import coverage

# A deadline would measure the machine, not the code. `make test` runs quick, continuous integration ci.
settings.register_profile(
    "quick", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True)
settings.register_profile("deep", settings.get_profile("quick"), max_examples=20_000)
settings.load_profile("quick")

# A shell's background jobs and nohup's children ignore SIGINT, and what they start does too, unless it is handled here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make messages`."""
    parser.addoption(messages.OPTION, action="store_true", help="write the texts that tests pin, and compare none")


def pytest_configure(config: pytest.Config) -> None:
    """Register the snapshots of texts, and the report of instructions that no test of PTX executes."""
    config.pluginmanager.register(coverage.Plugin())
    config.pluginmanager.register(messages.Plugin(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all left to `make check`."""
    is_quick = "not integration" in config.option.markexpr
    is_test = collection_path.match("test_*.py")
    return True if is_quick and is_test and tiers.is_integration_alone(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that their folder or their cost makes integration tests, and the cases that are dear."""
    if tiers.is_integration(item.nodeid):
        item.add_marker(pytest.mark.integration)
    if item.nodeid in tiers.dear() and not getattr(item.config.option, "note_costs", False):
        item.add_marker(pytest.mark.deep)


def hopper_gpus() -> int:
    """Count the GPUs of compute capability 9.0."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return sum(torch.cuda.get_device_capability(i) == (9, 0) for i in range(torch.cuda.device_count()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, saying what is missing."""
    if addresses := [item.nodeid for item in items if re.search(r" at 0x[0-9a-f]+", item.nodeid)]:
        raise pytest.UsageError(
            f"{addresses[0]} is called by an address, another one in each process of xdist; "
            "leave ids=str out, or give the parameter a name with pytest.param(..., id=...)"
        )
    leave_to_deep(items)
    if not any("::" in argument for argument in config.args):
        check_compiling(items)
    if any(item.get_closest_marker("dsl") for item in items) and importlib.util.find_spec("cutlass") is None:
        skip(items, "dsl", "needs nvidia-cutlass-dsl: pip install 'cutepy[dsl]'")
    if any(item.get_closest_marker("gpu") or item.get_closest_marker("multigpu") for item in items):
        gpus = hopper_gpus()
        if gpus < 1:
            skip(items, "gpu", "needs a Hopper GPU (compute capability 9.0)")
        if gpus < 2:
            skip(items, "multigpu", f"needs at least 2 Hopper GPUs, got {gpus}")


def pytest_collection_finish() -> None:
    """Let garbage collections leave out what was imported, which stays: pytest's ten at the end took seconds."""
    gc.collect()
    gc.freeze()


def leave_to_deep(items: list[pytest.Item]) -> None:
    """Mark cases `deep` behind the first ones of a test that has as many as its mark says."""
    counts: Counter[str] = Counter()
    for item in items:
        is_deep = item.get_closest_marker("deep") is not None and item.nodeid not in tiers.dear()
        if (mark := item.get_closest_marker("first")) is None or is_deep:
            continue
        name = item.nodeid.partition("[")[0]
        counts[name] += 1
        if counts[name] > mark.args[0]:
            item.add_marker(pytest.mark.deep)


def check_compiling(items: list[pytest.Item]) -> None:
    """Raise if a case of `tiers.COMPILING` is no integration test, of functions all of whose cases are here."""
    tested = {item.nodeid: item.get_closest_marker("deep") is None for item in items}
    functions = {tiers.function_of(name) for name in tested}
    if missing := [name for name in tiers.COMPILING if tiers.function_of(name) in functions and not tested.get(name)]:
        raise pytest.UsageError(f"{missing[0]} must be an integration test: see tests.tiers.COMPILING")


def skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    """Skip the items that bear `marker`."""
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))
