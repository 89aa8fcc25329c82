"""Operations on torch's DTensors: choose how each mesh dimension shards them, and compute on the local tensors.

A `Sharding` names the dimensions of an operation's tensors by letters, as an einsum does. On each dimension of a mesh,
one letter is sharded, or none. A tensor with that letter is sharded along it, and any other input is replicated. A
result with that letter is sharded along it, and any other result is partial: its local values are to be added up.

The local computation is differentiable, and so are DTensor's own redistributions, which give gradients their
placements: that of a replicated input is a partial sum over the mesh dimension where something is sharded.

This module does not import torch.distributed.tensor; programs that make DTensors do.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Letter(NamedTuple):
    """A dimension's name; its extent is the letter's over `unit`, rounded up."""

    name: str
    unit: int = 1


Letters = tuple[Letter | None, ...]
"""Of a tensor's dimensions; None of one that is never sharded."""


class Sharding(NamedTuple):
    """Sharding rules of an operation.

    Attributes
    ----------
    inputs : tuple of Letters
        Of all tensors among the arguments, in their order, lists of tensors included.
    outputs : tuple of Letters
        Of the results.
    along : tuple of str
        Letters that may be sharded; results are right without any communication, but for partial results.
    joined : tuple of str
        For each result, how partial ones are joined: "sum", "max" or "min"; all by "sum" if empty.
    once : frozenset of int
        Inputs that are added to results. Where these are partial sums, one part adds them.
    """

    inputs: tuple[Letters, ...]
    outputs: tuple[Letters, ...]
    along: tuple[str, ...]
    joined: tuple[str, ...] = ()
    once: frozenset[int] = frozenset()


def letters(*names: str | Letter | None) -> Letters:
    """Give the letters of dimensions by their names.

    Examples
    --------
    >>> letters("m", Letter("k", 128), None)
    (Letter(name='m', unit=1), Letter(name='k', unit=128), None)
    """
    return tuple(Letter(name) if isinstance(name, str) else name for name in names)


def aligned(tensor: torch.Tensor, full: Letters, shape: Sequence[int]) -> Letters:
    """Give the letters of a tensor that broadcasts to a shape with these letters: none where its extent is 1.

    Examples
    --------
    >>> aligned(torch.empty(1, 8), letters("b", "m", "n"), (2, 4, 8))
    (None, Letter(name='n', unit=1))
    """
    count = tensor.dim()
    beyond = (None,) * (count - len(full))
    count -= len(beyond)
    own = zip(full[len(full) - count :], tensor.shape[len(beyond) :], shape[len(shape) - count :], strict=True)
    return beyond + tuple(None if extent == 1 and whole != 1 else letter for letter, extent, whole in own)


Rule = Callable[..., Sharding]
"""Gives the sharding for an operation's arguments, as tensors of the meta device."""

_waiting: list[tuple[Any, Any, Callable[..., Any]]] = []
"""Operations that DTensor's dispatch is yet to know, each with its library."""


def register_rule(op: Any, library: Any, on_shards: Callable[[Sequence[Any], Mapping[str, Any]], Any]) -> None:  # noqa: ANN401
    """Have DTensor's dispatch call `on_shards(arguments, named)` for an operation, once there are DTensors."""

    def rule(kind: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        return on_shards(args, kwargs or {})

    _waiting.append((op, library, rule))
    tell_dtensor()


def tell_dtensor() -> None:
    """Register the rules that wait for DTensor to be imported; without either it costs a look-up at most."""
    if _waiting and (kind := dtensor_class()) is not None:
        while _waiting:
            op, library, rule = _waiting.pop()
            torch.library.register_torch_dispatch(op, kind, rule, lib=library)


def dtensor_class() -> Any:  # noqa: ANN401
    """Return the class DTensor, or None if it was never imported, so no DTensor exists."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def is_distributed(value: object) -> bool:
    """Return whether a value is a DTensor, or a list or mapping has one."""
    kind = dtensor_class()
    return kind is not None and any(
        isinstance(leaf, kind) for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)
    )


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is of no subclass, but for parameters."""
    return type(tensor) in _PLAIN


def holds_distributed(arguments: Sequence[Any]) -> bool:
    """Tell whether the arguments of an operation hold DTensors; plain tensors alone take one test."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            if not is_plain(argument) and is_distributed(argument):
                return True
        elif isinstance(argument, (list, tuple)) and holds_distributed(argument):
            return True
    return False


def removable(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor whose dimensions of extent 1 a view may remove, which DTensor refuses of sharded ones."""
    if not holds_distributed((tensor,)):
        return tensor
    distributed: Any = tensor
    whole = _placement((), None)
    placements = [  # to a partial sum nothing is redistributed
        whole if each.is_partial() or (each.is_shard() and tensor.shape[each.dim] == 1) else each
        for each in distributed.placements
    ]
    found: torch.Tensor = distributed.redistribute(placements=placements)
    return found


def compute(
    function: Callable[..., Any],
    rule: Rule,
    arguments: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    mutated: frozenset[int] = frozenset(),
) -> Any:  # noqa: ANN401
    """Compute a function of DTensors by its local tensors, differentiably.

    Parameters
    ----------
    function : callable
        Takes tensors of any device, the meta device included.
    rule : callable
        Gives its `Sharding`, of arguments with tensors of the meta device.
    arguments, named
        With DTensors of one mesh in the place of tensors.
    mutated : frozenset of int
        Positions of arguments that it writes to. They keep their placements.

    Returns
    -------
    Tensor, list, tuple or None
        As the function gives it, of DTensors.

    Raises
    ------
    TypeError
        If a tensor is no DTensor, and has more than one element.
    ValueError
        If DTensors have several meshes, or one that is written to is a partial sum.
    """
    leaves, tree = pytree.tree_flatten((tuple(arguments), dict(named or {})))
    indices = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[n] for n in indices]
    mesh = _mesh(tensors)
    starts = [0, *accumulate(len(pytree.tree_leaves(argument)) for argument in arguments)]
    written = [  # by place, since it may also be read, as c is
        indices.index(place)
        for n in mutated
        for place in range(starts[n], starts[n] + len(pytree.tree_leaves(arguments[n])))
    ]

    metas = list(leaves)
    for n, tensor in zip(indices, tensors, strict=True):
        metas[n] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    on_meta, by_name = pytree.tree_unflatten(metas, tree)
    with torch.no_grad():
        whole = function(*on_meta, **by_name)  # refuses what doesn't fit before anything is sent
        sharding = rule(*on_meta, **by_name)

    plan = _choose(sharding, tensors, mesh)
    for n in written:
        if any(placement.is_partial() for placement in tensors[n].placements):
            raise ValueError("what is written to must not be a partial sum; redistribute it to Replicate() or Shard()")
    given = list(leaves)
    for n, (place, tensor) in enumerate(zip(indices, tensors, strict=True)):
        local = _local(tensor, mesh, sharding.inputs[n], plan)
        given[place] = _added_once(local, mesh, sharding, plan) if n in sharding.once else local
    on_locals, by_name = pytree.tree_unflatten(given, tree)
    results = function(*on_locals, **by_name)
    for n in written:
        _write_back(tensors[n], given[indices[n]], mesh, [_placement(sharding.inputs[n], each) for each in plan])

    if results is None:
        return None
    parts, form = pytree.tree_flatten(results)
    wholes = pytree.tree_leaves(whole)
    joined = sharding.joined or ("sum",) * len(parts)
    found = []
    for part, outer, names, kind in zip(parts, wholes, sharding.outputs, joined, strict=True):
        placements = [_placement(names, each, kind) for each in plan]
        own = {"shape": outer.shape, "stride": outer.stride()}
        found.append(dtensor_class().from_local(part, mesh, placements, run_check=False, **own))
    return pytree.tree_unflatten(found, form)


_compute_uncompiled: Callable[..., Any] = torch._disable_dynamo(compute)  # type: ignore[attr-defined]


def compute_here(function: Callable[..., Any], rule: Rule, arguments: Sequence[Any], /, **named: Any) -> Any:  # noqa: ANN401
    """Compute a function that is no operation, as `compute` does; torch.compile breaks its graph here.

    It is for functions that see their tensors in other shapes before they call an operation: views that join dimensions
    cost communication where one of them is sharded, or are refused.
    """
    return (_compute_uncompiled if torch.compiler.is_dynamo_compiling() else compute)(function, rule, arguments, named)


def _mesh(tensors: Sequence[Any]) -> Any:  # noqa: ANN401
    """Give the mesh of DTensors, and refuse tensors beside them that are none."""
    kind = dtensor_class()
    meshes: list[Any] = []
    for tensor in tensors:
        if isinstance(tensor, kind):
            meshes += [tensor.device_mesh] if tensor.device_mesh not in meshes else []
        elif tensor.numel() > 1 or tensor.requires_grad:
            raise TypeError(
                f"all tensors beside DTensors must be DTensors, got a plain one of shape {tuple(tensor.shape)}; "
                "distribute it with torch.distributed.tensor.distribute_tensor(tensor, mesh, [Replicate()])"
            )
    if len(meshes) != 1:
        raise ValueError(f"all DTensors must be of one mesh, got {', '.join(map(str, meshes))}; move them to one")
    return meshes[0]


def _choose(sharding: Sharding, tensors: Sequence[Any], mesh: Any) -> list[str | None]:  # noqa: ANN401
    """Choose a letter for each dimension of the mesh, or none, with the least communication of the inputs."""
    extents: dict[str, int] = {}
    units: dict[str, int] = {}
    for names, tensor in zip(sharding.inputs, tensors, strict=True):
        for letter, extent in zip(names, tensor.shape, strict=True):
            if letter is not None and letter.unit == 1:
                extents[letter.name] = extent
    for names in (*sharding.inputs, *sharding.outputs):
        for letter in filter(None, names):
            units[letter.name] = math.lcm(units.get(letter.name, 1), letter.unit)
    smooth = [n for n, kind in enumerate(sharding.joined) if kind in ("max", "min")]
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
        smooth = []
    chosen: list[str | None] = []
    for dim in range(mesh.ndim):
        options: list[str | None] = [None]
        for name in sharding.along:
            ways = mesh.size(dim) * math.prod(mesh.size(n) for n, each in enumerate(chosen) if each == name)
            # Units are not parted; other extents may be, as torch.chunk does.
            fits = units[name] == 1 or extents[name] % (units[name] * ways) == 0
            # Where the largest of all parts is asked for, only one part has its gradient.
            smooths = all(any(letter and letter.name == name for letter in sharding.outputs[n]) for n in smooth)
            if fits and smooths:
                options.append(name)
        costs = [
            sum(_cost(tensor, dim, names, name, mesh) for tensor, names in zip(tensors, sharding.inputs, strict=True))
            for name in options
        ]
        chosen.append(options[costs.index(min(costs))])
    return chosen


def _cost(tensor: Any, dim: int, names: Letters, name: str | None, mesh: Any) -> float:  # noqa: ANN401
    """Estimate the bytes that each device receives to have a tensor as a letter wants it on a dimension of the mesh."""
    if not isinstance(tensor, dtensor_class()):
        return 0
    now, wanted = tensor.placements[dim], _placement(names, name)
    if now == wanted:
        return 0
    size: float = tensor.numel() * tensor.itemsize * (1 - 1 / mesh.size(dim))
    if now.is_replicate():
        return size * 2.0**-20  # a slice of what is here; and replicated inputs stay so where nothing is gained
    if now.is_partial():
        return size * (2 if wanted.is_replicate() else 1)
    return size if wanted.is_replicate() else size / mesh.size(dim)


def _placement(names: Letters, name: str | None, joined: str | None = None) -> Any:  # noqa: ANN401
    """Give the placement of a tensor on a mesh dimension along which a letter is sharded."""
    tensor = sys.modules["torch.distributed.tensor"]
    if name is None:
        return tensor.Replicate()
    for dim, letter in enumerate(names):
        if letter is not None and letter.name == name:
            return tensor.Shard(dim)
    return tensor.Replicate() if joined is None else tensor.Partial(joined)


def _local(tensor: Any, mesh: Any, names: Letters, plan: Sequence[str | None]) -> torch.Tensor:  # noqa: ANN401
    """Redistribute an input as planned, and give its local tensor."""
    if not isinstance(tensor, dtensor_class()):
        return tensor  # type: ignore[no-any-return]
    placements = [_placement(names, name) for name in plan]
    if tensor.is_floating_point() and tensor.itemsize == 1 and tuple(placements) != tuple(tensor.placements):
        # As bytes, since not every backend of torch.distributed sends 8-bit floats; those have no gradients.
        whole = {"shape": tensor.shape, "stride": tensor.stride()}
        own = tensor.to_local().view(torch.uint8)
        sent = dtensor_class().from_local(own, mesh, tensor.placements, run_check=False, **whole)
        return sent.redistribute(mesh, placements).to_local().view(tensor.dtype)  # type: ignore[no-any-return]
    # Also where nothing moves: its derivative brings the gradient into the tensor's own placements.
    moved = tensor.redistribute(mesh, placements)
    if any(each.is_partial() for each in tensor.placements):
        # Again, so that a partial gradient is added up first: torch 2.6 takes that of a partial input for the whole.
        moved = moved.redistribute(mesh, placements)
    return moved.to_local(  # type: ignore[no-any-return]
        grad_placements=[_placement(names, name, "sum") for name in plan]
    )


def _added_once(local: torch.Tensor, mesh: Any, sharding: Sharding, plan: Sequence[str | None]) -> torch.Tensor:  # noqa: ANN401
    """Give an input to the first device of each dimension along which results are partial sums, zeros to the others."""
    kept = {letter.name for names in sharding.outputs for letter in names if letter is not None}
    summed = [dim for dim, name in enumerate(plan) if name is not None and name not in kept]
    if not summed:
        return local
    # No product by 0, which of an infinity is NaN; and on all devices, whose backward passes are then alike.
    others = any(mesh.get_local_rank(dim) for dim in summed)
    return local.masked_fill(torch.full((), others, dtype=torch.bool, device=local.device), 0)


def _write_back(tensor: Any, local: torch.Tensor, mesh: Any, placements: Sequence[Any]) -> None:  # noqa: ANN401
    """Copy a written result back to the tensor's memory, if the result lies elsewhere."""
    if tuple(placements) == tuple(tensor.placements):
        return
    with torch.no_grad():
        whole = {"shape": tensor.shape, "stride": tensor.stride()}
        written = dtensor_class().from_local(local, mesh, placements, run_check=False, **whole)
        tensor.to_local().copy_(written.redistribute(mesh, tensor.placements).to_local())
