"""Linear layers that take the same input become one product: their weights adjoin in memory.

Each layer keeps its parameters, which become parts of one tensor. The module of such layers keeps its code, and gets a
class whose `forward` runs within a `Share`. A parameter that is moved or replaced no longer adjoins the others, and the
layers compute separately again. When the whole module is moved, converted or copied, its weights are joined again.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cutepy.nn.code_names import arguments_of
from cutepy.nn.derived_classes import derives
from cutepy.nn.linear import Linear
from cutepy.nn.shared_products import CURRENT, Layers, Share, joinable, joined_parts, tensors_of
from cutepy.ops.joined_linears import DTYPES, adjoining

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that take the same input."""
_OTHER_INPUTS = ("key_value_states", "encoder_hidden_states", "key", "value", "memory")
"""Names of arguments whose projections are not those of the queries' input."""


class AdjoiningLayers(torch.nn.Module):
    """Base of modules with linear layers whose weights adjoin, and adjoin again after the module was moved or copied.

    Attributes
    ----------
    joined_layers : tuple of tuple of str
        Names of the layers of each product.
    """

    joined_layers: tuple[tuple[str, ...], ...] = ()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:  # noqa: ANN401
        before = [names for names in self.joined_layers if _adjoin(self, names)]
        found = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for names in before:
            join_weights(self, names)
        return found

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for names in self.joined_layers:
            join_weights(self, names)


def layers_of(module: torch.nn.Module, names: Sequence[str]) -> Layers | None:
    """List the linear layers of a module by their names; None if some are none of cutepy's."""
    found = [module._modules.get(name) for name in names]
    return found if all(type(each) is Linear for each in found) else None  # type: ignore[return-value]


def _adjoin(module: torch.nn.Module, names: Sequence[str]) -> bool:
    layers = layers_of(module, names)
    return layers is not None and all(adjoining(each) is not None for each in tensors_of(layers) if each)


def join_weights(module: torch.nn.Module, names: Sequence[str]) -> str | None:
    """Move the weights of a module's layers, and their biases, into one tensor each, or say why not.

    Optimizers, hooks and state dicts keep the parameters. A holder of the old memory, such as a CUDA graph, keeps the
    old values.
    """
    layers = layers_of(module, names)
    if layers is None:
        return "not all are cutepy's linear layers"
    weights, biases = tensors_of(layers)
    if biases and len(biases) != len(weights):
        return "some have a bias, and others none"
    every = weights + biases
    if len({*map(id, every)}) < len(every):
        return "a parameter is another's too"
    if any(type(each) is not torch.nn.Parameter or each.is_inference() for each in every):
        return "a parameter is of a class of its own, or was made in inference mode"
    if len({(each.dtype, each.device) for each in every}) > 1 or weights[0].dtype not in DTYPES:
        return "their dtypes or devices differ, or are none that is joined"
    if len({each.shape[1] for each in weights}) > 1:
        return "their inputs have different widths"
    if all(adjoining(each) is not None for each in (weights, biases) if each):
        return None
    if any(not _is_movable(each, tensors) for tensors in (weights, biases) for each in tensors):
        return "a parameter is part of another tensor"
    with torch.inference_mode(False), torch.no_grad():
        for tensors in (weights, biases):
            if tensors:
                whole = torch.cat([each.data for each in tensors])
                for each, part in zip(tensors, whole.split([each.shape[0] for each in tensors]), strict=True):
                    each.data = part
    return None


def _is_movable(tensor: torch.Tensor, joined: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor is all of its storage, or has a storage of the size of all that were joined before."""
    sizes = tensor.nbytes, sum(each.nbytes for each in joined)
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() in sizes


def products(layers: Sequence[torch.nn.Module], x: torch.Tensor) -> Sequence[torch.Tensor]:
    """Give the results of modules, computed as one product where these are linear layers that are joinable."""
    if not torch.compiler.is_compiling():
        whole = joinable(Linear, layers, x)  # type: ignore[arg-type]
        if whole is not None:
            return joined_parts(whole, x)
    return [layer(x) for layer in layers]


def owners(model: torch.nn.Module) -> Counter[Any]:
    """Count the places in a model that hold each storage."""
    found: Counter[Any] = Counter()
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            held = (each for each in tensors.values() if each is not None and _has_storage(each))
            found.update(each.untyped_storage()._cdata for each in held)
    return found


def _has_storage(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided


def groups_of(module: torch.nn.Module) -> list[tuple[str, ...]]:
    """List the groups of a module whose layers are all cutepy's."""
    return [names for names in GROUPS if layers_of(module, names) is not None]


def adopt_join(module: torch.nn.Module, names: tuple[str, ...], held: Mapping[Any, int]) -> str | None:
    """Replace layers of a module by one product, in place; return the reason if that is refused.

    Parameters
    ----------
    names : tuple of str
        Of the layers: one of `GROUPS`.
    held : mapping
        `owners` of the model.
    """
    layers = layers_of(module, names)
    assert layers is not None, "is asked for by groups_of"
    adjoin = _adjoin(module, names)
    if adjoin and names in getattr(module, "joined_layers", ()):
        return "it is cutepy's"
    if others := arguments_of(type(module)) & {*_OTHER_INPUTS}:
        return f"its forward takes {', '.join(sorted(others))}, of which keys and values may be projections"
    own = Counter(each.untyped_storage()._cdata for both in tensors_of(layers) for each in both if _has_storage(each))
    if not adjoin and any(held[storage] > count for storage, count in own.items()):
        return "a parameter is another's too"
    if reason := join_weights(module, names):
        return reason
    if not isinstance(module, AdjoiningLayers):
        module.__class__ = _joining(type(module))
    assert isinstance(module, AdjoiningLayers), "is one, or has just become one"
    module.joined_layers = tuple(each for each in GROUPS if each == names or each in module.joined_layers)
    return None


@derives
def _joining(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Derive from `kind` the class whose linear layers share products."""
    theirs = kind.forward

    @functools.wraps(theirs)
    def forward(self: AdjoiningLayers, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if torch.compiler.is_compiling():  # which keeps no tensor from one call for the next
            return theirs(self, *args, **kwargs)
        groups = [layers for names in self.joined_layers if (layers := layers_of(self, names)) is not None]
        before, CURRENT.share = CURRENT.share, (share := Share(groups))
        try:
            found = theirs(self, *args, **kwargs)
        finally:
            CURRENT.share = before
        if share.is_wasted:
            self.joined_layers = ()
        return found

    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (AdjoiningLayers, kind), {**names, "forward": forward})
