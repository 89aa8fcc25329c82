"""Scripts that look for a hazard on a GPU.

- ``instrument`` inserts delays into PTX, before chosen instructions of chosen warps.
- ``gpu_runner`` is what each script does, on the GPU of ``gpu_driver``: both are copied into the script, which needs a
  driver and nothing else.
- ``scripts`` puts a script together.
"""
