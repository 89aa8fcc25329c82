"""What people look at: shared memory, timelines, bank conflicts, saved runs."""
