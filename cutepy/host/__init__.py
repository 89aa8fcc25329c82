"""Compile once, keep it on disk, launch in microseconds."""
