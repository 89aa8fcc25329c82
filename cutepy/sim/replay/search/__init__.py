"""All schedules of a launch, up to the order of steps that commute.

``touched`` says what a step touches and which steps commute; ``tree`` which schedules are left to play; ``guided``
plays them; ``search`` has what they come to.
"""
