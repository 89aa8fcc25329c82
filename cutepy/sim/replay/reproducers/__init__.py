"""Scripts that look for a hazard on a GPU.

- ``instrument`` inserts delays into PTX, before chosen instructions of chosen warps.
- ``gpu_runner`` is what each script does: it needs a driver and nothing else, and is copied into the script.
- ``scripts`` puts a script together.
"""
