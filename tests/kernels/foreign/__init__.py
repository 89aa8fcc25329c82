"""Runs others' tests of attention with cutepy's in place of what they test, and prints a table: see `__main__`."""
