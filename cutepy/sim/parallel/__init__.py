"""One launch on several processors: its waves, and what they must not share."""
