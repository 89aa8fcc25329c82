"""The command line, `cutepy` or `python -m cutepy`. Each command imports what it needs when it runs."""
