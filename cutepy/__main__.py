"""Run the command line: `python -m cutepy`."""

from cutepy.cli.app import main

if __name__ == "__main__":
    main()
