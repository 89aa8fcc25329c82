"""Run the command line: `python -m cutepy`. A GPU host need not have typer for `tutorial` and `demo`."""

import sys
from importlib.util import find_spec

from cutepy.cli.write_errors import report_write_errors


def main() -> None:
    """Run the command line on `sys.argv`; the process ends with the command's exit code."""
    if find_spec("typer") is not None:
        from cutepy.cli.app import main as run_command

        run_command()
    elif sys.argv[1:] == ["tutorial"]:
        from cutepy.cli.tutorial import walk

        sys.exit(walk.run())
    elif sys.argv[1:] == ["tutorial", "--check"]:
        from cutepy.cli import conformance

        sys.exit(conformance.run())
    elif sys.argv[1:] == ["demo"]:
        from cutepy.cli import demo

        sys.exit(demo.run())
    else:
        sys.exit("cutepy's command line needs typer: pip install typer; without it there are `tutorial` and `demo`")


if __name__ == "__main__":
    with report_write_errors():
        main()
