"""`cutepy tutorial`: layouts, swizzles, wgmma, TMA and a main loop, in chapters with pictures and questions.

A chapter is a text file in `chapters`. What it says of a layout is not written there but computed when it is read: its
numbers are expressions in braces, its sessions and pictures are evaluated, and its claims are assertions.
"""
