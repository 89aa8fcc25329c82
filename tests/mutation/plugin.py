"""Pytest plugin of the mutation runs: short, repeatable properties."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "mutation",
    max_examples=30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
