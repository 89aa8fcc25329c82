"""`replace`: swap a model's modules for cutepy's, and tell which were and which were not, and why."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from cutepy.kernels.gemm.operands import OPERAND_DTYPES
from cutepy.kernels.rows.tiling import MOST_COLUMNS
from cutepy.nn.adjoining_weights import adopt_join, groups_of, owners
from cutepy.nn.gated import GatedMLP
from cutepy.nn.linear import Linear
from cutepy.nn.losses import CrossEntropyLoss
from cutepy.nn.model_losses import FUNCTION as LOSS, adopt_loss, computes_loss
from cutepy.nn.norms import LayerNorm, RMSNorm
from cutepy.nn.replaced_attention import adopt_attention, calls_attention
from cutepy.nn.replaced_rotary import FUNCTION, adopt_rotation, rotates
from cutepy.ops.gated import REFERENCES
from cutepy.ops.normalising import DTYPES

Filter = Callable[[str, torch.nn.Module], Any]


@dataclass
class Replacement:
    """Modules by their names: those that were swapped, those that were joined, and those that were kept.

    Attributes
    ----------
    swapped : dict of str to str
        Name -> former class.
    joined : dict of str to str
        Names of linear layers, such as "layers.0.self_attn.q_proj+k_proj+v_proj" -> how they are computed.
    kept : dict of str to str
        Name -> reason, of modules without submodules, modules of attention and gated layers; of linear layers that are
        not joined.
    """

    swapped: dict[str, str] = field(default_factory=dict)
    joined: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Give a line for each class, and for each reason, with the names."""
        lines = []
        for verb, found in (("swapped", self.swapped), ("joined", self.joined), ("kept", self.kept)):
            by_reason: dict[str, list[str]] = {}
            for name, reason in found.items():
                by_reason.setdefault(reason, []).append(name or "the model")
            for reason, names in by_reason.items():
                few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
                lines.append(f"{verb} {len(names)}: {few}: {reason}")
        return "\n".join(lines)


def replace(model: torch.nn.Module, filter: Filter | None = None) -> Replacement:
    """Swap a model's linear layers, normalisations, attention, losses and gated activations for cutepy's, in place.

    A `torch.nn.Linear`, `RMSNorm`, `LayerNorm` or `CrossEntropyLoss` becomes `cutepy.nn`'s: the same object, with its
    parameters, hooks and names. So does a module of another class whose name has "RMSNorm" in it, such as those of
    Hugging Face's models, if it has a weight of one dimension and nothing else, and computes what
    `torch.nn.functional.rms_norm` does, for which a copy of it is tried. Ours rounds once, where some round before the
    weight, too. And so does one whose name has "MLP" in it, with gate_proj, up_proj and down_proj, if a copy of it with
    small linear layers computes what `GatedMLP` does.

    Attention is swapped within modules, whose projections, masks and caches stay theirs: in a
    `torch.nn.MultiheadAttention`, in modules whose `forward` calls
    `torch.nn.functional.scaled_dot_product_attention`, and in Hugging Face's modules of a model that was made with
    ``attn_implementation="sdpa"``. Calls that cutepy doesn't compute, as those of float32, stay torch's. So are rotary
    embeddings in modules whose `forward` calls a function `apply_rotary_pos_emb` of its file, as Llama's, if the
    function computes `cutepy.ops.rotary`, and the model's modules named RotaryEmbedding give it cosines of two equal
    halves; both are tried. So is the `loss_function` that a model's `forward` calls, as Hugging Face's do, and becomes
    cutepy's if it is the mean cross entropy of next tokens: logits are not converted to float32.

    Linear layers q_proj, k_proj and v_proj of a module, and gate_proj and up_proj, are joined: their weights become
    parts of one tensor, of which calls with the same input are one product. Whatever parts them later, as an adapter, a
    hook or an assigned parameter, has them computed apart.

    Parameters
    ----------
    model : torch.nn.Module
        May be such a module itself.
    filter : callable, optional
        Tells by name, such as "layers.0.mlp.up_proj", and module whether to swap it.

    Returns
    -------
    Replacement
        Printed, it says what was swapped, what was kept, and why.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.RMSNorm(8), torch.nn.Linear(8, 4), torch.nn.ReLU())
    >>> print(replace(model))
    swapped 1: 0: torch.nn.modules.normalization.RMSNorm
    swapped 1: 1: torch.nn.modules.linear.Linear
    kept 1: 2: cutepy.nn has no ReLU
    """
    done, unused = Replacement(), set[str]()
    for name, module in list(model.named_modules()):
        was = type(module)
        if name in unused:
            continue
        if rotates(module):
            _adopt_function(name, FUNCTION, module, filter, done, lambda module: adopt_rotation(module, model))
        if computes_loss(module):
            _adopt_function(name, LOSS, module, filter, done, adopt_loss)
        reason = _adopt(name, module, filter)
        if reason is None:
            done.swapped[name] = f"{was.__module__}.{was.__qualname__}"
            if isinstance(module, GatedMLP):
                unused |= {
                    f"{name}.{own}" if name else own for own, _ in module.named_children() if own not in PROJECTIONS
                }
        elif calls_attention(module) or "MLP" in was.__name__ or not any(True for _ in module.children()):
            done.kept[name] = reason
    _join(model, filter, done)
    return done


def _adopt_function(
    name: str,
    function: str,
    module: torch.nn.Module,
    filter: Filter | None,
    done: Replacement,
    adopt: Callable[[torch.nn.Module], str | None],
) -> None:
    """Swap a function that a module calls, and tell it by the module's name and its own."""
    own, was = f"{name}.{function}" if name else function, type(module).__module__
    reason = "the filter left it out" if filter is not None and not filter(own, module) else adopt(module)
    if reason is None:
        done.swapped[own] = f"{was}.{function}"
    else:
        done.kept[own] = reason


def _join(model: torch.nn.Module, filter: Filter | None, done: Replacement) -> None:
    """Join linear layers that take the same input, and tell which."""
    held = owners(model)
    for name, module in model.named_modules():
        for names in groups_of(module):
            own = f"{name}.{'+'.join(names)}" if name else "+".join(names)
            left_out = filter is not None and not filter(own, module)
            reason = "the filter left it out" if left_out else adopt_join(module, names, held)
            if reason is None:
                done.joined[own] = "one product"
            else:
                done.kept[own] = reason


def _adopt(name: str, module: torch.nn.Module, filter: Filter | None) -> str | None:
    """Swap a module's class, or say why not."""
    kind = type(module)
    if kind in (Linear, RMSNorm, LayerNorm, CrossEntropyLoss, GatedMLP):
        return "it is cutepy's"
    if calls_attention(module):
        if filter is not None and not filter(name, module):
            return "the filter left it out"
        return adopt_attention(module)
    own = _OWN.get(kind)
    settings: dict[str, Any] | str = {}
    if own is None and "RMSNorm" in kind.__name__:
        own, settings = RMSNorm, _settings_of_norm(module)
    elif own is None and "MLP" in kind.__name__:
        own, settings = GatedMLP, _settings_of_mlp(module)
    if own is None:
        base = next((each.__name__ for each in _OWN if isinstance(module, each)), None)
        return f"cutepy.nn has no {kind.__name__}" + ("" if base is None else f", a class of its own made of {base}")
    if isinstance(settings, str):
        return settings
    if reason := _refusal(module, own):
        return reason
    if filter is not None and not filter(name, module):
        return "the filter left it out"
    for attribute, value in settings.items():
        setattr(module, attribute, value)
    module.__class__ = own
    return None


_OWN: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.Linear: Linear,
    torch.nn.RMSNorm: RMSNorm,
    torch.nn.LayerNorm: LayerNorm,
    torch.nn.CrossEntropyLoss: CrossEntropyLoss,
}
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
"""Linear layers of a gated layer."""


def _refusal(module: torch.nn.Module, own: type[torch.nn.Module]) -> str | None:
    """Return the reason why cutepy's class does not compute a module; None if it does."""
    takes, verb = (OPERAND_DTYPES, "multiplies") if own is Linear else (DTYPES, "normalises")
    for parameter in module.parameters(recurse=False):
        if parameter.dtype not in takes:
            return f"cutepy {verb} no {str(parameter.dtype).removeprefix('torch.')}"
    shape = getattr(module, "normalized_shape", ())
    if math.prod(shape) > MOST_COLUMNS:
        return f"cutepy normalises {MOST_COLUMNS} elements at most"
    return None


def _settings_of_mlp(module: torch.nn.Module) -> dict[str, Any] | str:
    """Give the attributes of `GatedMLP` for a module of another class that computes it, or say why it is none."""
    name, children = type(module).__name__, dict(module.named_children())
    own = [key for key, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))]
    if own or not all(isinstance(children.get(each), torch.nn.Linear) for each in PROJECTIONS):
        return f"{name} has not the linear layers {', '.join(PROJECTIONS)} alone"
    others = [child for key, child in children.items() if key not in PROJECTIONS]
    if any(True for child in others for _ in child.parameters()):
        return f"{name} has other parameters than those of {', '.join(PROJECTIONS)}"
    if (dtype := children["gate_proj"].weight.dtype) not in DTYPES:
        return f"cutepy gates no {str(dtype).removeprefix('torch.')}"
    chance, tried = torch.Generator().manual_seed(0), copy.copy(module)
    rows, small = torch.randn(4, 8, generator=chance), dict[str, torch.nn.Linear]()
    for each in PROJECTIONS:
        shape = (8, 12) if each == "down_proj" else (12, 8)
        small[each] = torch.nn.Linear(*shape[::-1], bias=False, device="meta")
        small[each].weight = torch.nn.Parameter(torch.randn(shape, generator=chance))
    tried.__dict__["_modules"] = children | small
    try:
        with torch.no_grad():
            found = type(tried).forward(tried, rows)
            gate, up = small["gate_proj"](rows), small["up_proj"](rows)
            for activation, function in REFERENCES.items():
                if torch.allclose(found, small["down_proj"](function(gate) * up), rtol=1e-4, atol=1e-6):
                    return {"activation": activation}
    except Exception as error:  # of whatever somebody's forward does
        return f"{name} does not take rows alone: {type(error).__name__}"
    return f"{name} computes something else than a gated activation"


def _settings_of_norm(module: torch.nn.Module) -> dict[str, Any] | str:
    """Give the attributes of `RMSNorm` for a module of another class that computes it, or say why it is none."""
    name, tensors = type(module).__name__, dict(module.state_dict(keep_vars=True))
    weight = tensors.get("weight")
    eps = next((found for key in _EPS if type(found := getattr(module, key, None)) is float), None)
    if list(tensors) != ["weight"] or weight is None or weight.dim() != 1 or eps is None:
        return f"{name} has other parameters than a weight of one dimension, or no eps"
    if type(weight) is not torch.nn.Parameter or weight.is_meta or not weight.is_floating_point():
        return f"the weight of {name} has no values to try it with"
    chance, shape = torch.Generator().manual_seed(0), weight.shape
    given, rows = torch.randn(shape, generator=chance), torch.randn(4, *shape, generator=chance)
    rows = rows * torch.tensor([[1.0], [30.0], [1e-1], [1e-3]])
    given, rows = given.to(weight.device), rows.to(weight.device)
    try:
        with torch.no_grad():
            tried = copy.deepcopy(module).float()
            tried.weight = torch.nn.Parameter(given)
            found = type(tried).forward(tried, rows)
            wanted = torch.nn.functional.rms_norm(rows, shape, given, eps)
            is_same = torch.allclose(found, wanted, rtol=1e-3, atol=1e-6)
    except Exception as error:  # of whatever somebody's forward does
        return f"{name} does not take rows alone: {type(error).__name__}"
    if not is_same:
        return f"{name} computes something else than torch.nn.functional.rms_norm"
    return {"normalized_shape": tuple(shape), "eps": eps, "elementwise_affine": True}


_EPS = ("eps", "variance_epsilon", "epsilon")
"""Names of the attribute eps in other classes."""
