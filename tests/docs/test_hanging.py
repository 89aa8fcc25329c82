"""The page on kernels that hang shows a kernel that does, and what is said of it; its table quotes such reports."""

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "docs" / "hanging_kernel.md").read_text()
SCRIPT = re.search(r"```python\n(# hang.py\n.*?)```", PAGE, re.DOTALL)[1]
REPORT = re.search(r"```text\n(.*?)\n```", PAGE, re.DOTALL)[1]


def deadlock(script, folder):
    """Run a script that hangs; give its report without the folder and the instruction."""
    pytest.importorskip("torch")
    from cutepy.sim import DeadlockError

    file = folder / "hang.py"
    file.write_text(script)
    with pytest.raises(DeadlockError) as caught:
        runpy.run_path(str(file), run_name="__main__")
    said = re.sub(r" in `[^`]*`", "", str(caught.value)).replace(f"{folder}/", "")
    return f"DeadlockError: {said}"


@pytest.mark.dsl
def test_the_report_is_the_one_on_the_page(tmp_path):
    assert deadlock(SCRIPT, tmp_path).split() == REPORT.split()


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("old", "new", "quoted"),
    [
        ("full, 2)", "full, 2)", ["1 of 2 arrivals"]),
        ("wait(full, 0)", "wait(full, 1)", ["wait for the phase of parity 1", "in phase 1"]),
        ("mbarrier_arrive(full)", "mbarrier_arrive_and_expect_tx(full, 1024)", ["1024 bytes pending"]),
    ],
)
def test_the_table_quotes_reports(old, new, quoted, tmp_path):
    script = SCRIPT if old == new else SCRIPT.replace("full, 2)", "full, 1)").replace(old, new)
    report = deadlock(script, tmp_path)
    for words in quoted:
        assert words in report
        assert f"`{words}`" in PAGE
