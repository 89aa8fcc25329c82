"""Happens-before: vector clocks of threads and operations, and the synchronisation that passes them on."""
