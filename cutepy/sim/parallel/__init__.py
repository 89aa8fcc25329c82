"""One launch on several processors: its waves, and the state that they must not share."""
