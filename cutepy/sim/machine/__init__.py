"""A launch in execution: its CTAs and groups of lanes, their memory, what happens and when, and the schedule."""
