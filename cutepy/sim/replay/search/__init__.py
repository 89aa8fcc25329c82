"""All schedules of a launch, up to the order of steps that commute.

``step_accesses`` records the accesses of a step and decides which steps commute. ``tree`` chooses the schedules to
play, ``guided_interleaving`` plays them, and ``search`` collects their outcomes.
"""
