"""Command line, `cutepy` or `python -m cutepy`.

Each command imports its modules when it runs.
"""
