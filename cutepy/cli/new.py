"""`cutepy new kernel`: a kernel to begin with, and its test."""

import ast
import builtins
import keyword
import sys
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from cutepy.host.output import check_is_or_may_be_folder

TORCH_NAMESPACES = frozenset(
    "aten c10d cuda debug_mode_ops debugprims export higher_order import_module inductor inductor_prims load_library "
    "loaded_libraries metal mkl mkldnn mkldnn_prepacked nccl onednn onnx prepacked prim prims profiler quantization "
    "quantized rngprims sparse static_runtime symm_mem vulkan xnnpack".split()
)
"""Namespaces and attributes of `torch.ops` in plain torch; listed here, since importing torch takes seconds."""

_LONGEST = 100
"""Largest number of characters of a name, so that file and kernel names made from it are valid on any system."""


FAMILIES = ("gemm", "attention", "rows", "blackwell")
"""Kernels to begin with: a product with a bias and relu, causal attention, an RMS norm, a product on Blackwell."""


def write_kernel(name: str, folder: Path, like: str = "gemm") -> list[Path]:
    """Write a kernel made of `cutepy.device`'s blocks, and a test that passes in the simulator.

    Parameters
    ----------
    name : str
        Of the kernel, its module and its operation: a Python identifier in ASCII, which no builtin has, no module that
        Python finds, no namespace of torch's operations, nor anything in the files, and which pytest does not take for
        a test.
    folder : Path
        Folder to write ``NAME.py`` and ``test_NAME.py`` to.
    like : str
        The kernel's family, of `FAMILIES`.

    Returns
    -------
    list of Path
        Files that were written.

    Raises
    ------
    ValueError
        If it is another name, or family.
    FileExistsError
        If one of the files exists: nothing is written then.
    NotADirectoryError
        If `folder` can't be made.
    """
    _check_spelling(name)
    if like not in FAMILIES:
        raise ValueError(f"--like must be one of {', '.join(FAMILIES)}, got {like!r}")
    check_is_or_may_be_folder(folder)
    files = {folder / f"{name}.py": f"{like}.py.jinja", folder / f"test_{name}.py": f"test_{like}.py.jinja"}
    for file in (folder / name, *files):  # a folder comes before a module of its name
        if file.exists():
            raise FileExistsError(f"{file} exists: choose another name, or move it away")
    _check_unused(name, folder, files.values())
    folder.mkdir(parents=True, exist_ok=True)
    for file, template in files.items():
        file.write_text(_rendered(template, name))
    return list(files)


def _rendered(template: str, name: str) -> str:
    environment = Environment(
        loader=PackageLoader("cutepy.cli"), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    return environment.get_template(template).render(name=name, title=name.replace("_", " ").capitalize())


def _check_spelling(name: str) -> None:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"NAME must be a Python identifier in ASCII, as fused_relu, got {name!r}")
    if len(name) > _LONGEST:
        raise ValueError(f"NAME must have {_LONGEST} characters at most, got {len(name)}; files' names must hold more")
    if name.lower().startswith("test"):
        raise ValueError(f"NAME must not begin with test, which pytest takes for a test, got {name!r}; use fused_relu")


def _check_unused(name: str, folder: Path, templates: Iterable[str]) -> None:
    """Refuse the name of a module that Python finds elsewhere, and names used within the files."""
    own = Path.cwd(), folder.resolve()
    path = [entry for entry in sys.path if Path(entry).resolve() not in own]
    if name in vars(builtins):
        raise ValueError(f"NAME must not be a builtin's, which the kernel would hide, got {name!r}; use {name}_kernel")
    known = name in sys.stdlib_module_names or name == __package__.partition(".")[0]
    if known or any(finder.find_spec(name, path) for finder in sys.meta_path):
        raise ValueError(
            f"NAME must not be a module's that can be imported, which the kernel would hide, got {name!r}; "
            f"use {name}_kernel"
        )
    if name in TORCH_NAMESPACES:
        raise ValueError(
            "NAME must not be a namespace of torch's operations, into which the kernel's would go, "
            f"got {name!r}; use {name}_kernel"
        )
    if any(name in _names(_rendered(template, _ANY)) for template in templates):
        raise ValueError(f"NAME must not be one that the files use themselves, got {name!r}; use {name}_kernel")


_ANY = "any_name"


def _names(text: str) -> set[str]:
    """List the names in a module's text."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    return names - {_ANY}
