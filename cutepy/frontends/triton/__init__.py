"""Triton and Gluon: their launches, taken while a run is active."""
