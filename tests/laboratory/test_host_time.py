"""The measurement of the host's time, on a device of host memory that stays for the life of a process."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")

from tests.laboratory.host_time import CASES, Times, table


def test_a_line_of_the_table_has_three_times():
    lines = table({"gemm": Times(1.0, 2.25, 30.0)}).splitlines()
    assert lines[1].split() == ["gemm", "1.0", "2.2", "30.0"]


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_a_call_is_measured(name, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "host_device"
    command = ["-m", "tests.laboratory.host_time", "--call", name, "--folder", folder, "--rounds", "1", "--calls", "2"]
    found = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert all(float(each) > 0 for each in found.stdout.splitlines()[-1].split()[-3:])
