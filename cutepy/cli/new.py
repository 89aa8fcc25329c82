"""`cutepy new kernel`: a kernel to begin with, and its test."""

import keyword
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined


def write_kernel(name: str, folder: Path) -> list[Path]:
    """Write a TMA -> WGMMA kernel made of `cutepy.device`'s blocks, and a test that passes in the simulator.

    Parameters
    ----------
    name : str
        Of the kernel, a Python identifier.
    folder : Path
        Where to write ``NAME.py`` and ``test_NAME.py``.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    ValueError
        If the name is no identifier.
    FileExistsError
        If one of the files exists: nothing is written then.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"NAME must be a Python identifier, as fused_relu, got {name!r}")
    files = {folder / f"{name}.py": "kernel.py.jinja", folder / f"test_{name}.py": "test_kernel.py.jinja"}
    for file in files:
        if file.exists():
            raise FileExistsError(f"{file} exists: choose another name, or move it away")
    environment = Environment(
        loader=PackageLoader("cutepy.cli"), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    for file, template in files.items():
        file.write_text(environment.get_template(template).render(name=name, title=name.replace("_", " ").capitalize()))
    return list(files)
