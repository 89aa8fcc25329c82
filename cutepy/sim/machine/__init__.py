"""A launch in execution: its CTAs and groups of lanes, their memory, their events in time, and the schedule."""
