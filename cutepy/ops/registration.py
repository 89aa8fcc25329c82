"""`register`: make an operation of PyTorch from a function that launches kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutepy.ops.derivatives import register_derivative
from cutepy.ops.flops import FORMULAS, Formula
from cutepy.ops.operation import Operation, P, R
from cutepy.ops.rules import one_by_one, register_autocast, register_mutation

_registered: dict[str, Operation[Any, Any]] = {}


def register(
    schema: str,
    *,
    reference: Callable[..., Any],
    fake: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
    autocast: str | None = None,
    vmap: Callable[..., Any] | None = None,
    flops: Formula | None = None,
) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an operation of PyTorch from the function below: a decorator.

    The function takes CUDA tensors, allocates the result, and launches compiled kernels (`cutepy.compile`) on
    them. On CPU tensors the operation computes the reference, except within
    `cutepy.simulate()`, where the function runs too, and its kernels in the simulator.

    Parameters
    ----------
    schema : str
        As torch.library has it: "mylib::scale(Tensor x, float factor) -> Tensor". Of a function that writes to an
        argument, "Tensor(a!) out", and returns nothing, "-> ()".
    reference : callable
        The same computation in plain torch, on tensors of any device.
    fake : callable, optional
        Gives empty results of the right shapes, strides, dtypes and devices for tensors without data. The reference
        if not given: its results must then have the strides of the function's.
    setup_context, backward : callable, optional
        The derivative, as `torch.library.register_autograd` takes it: `setup_context(ctx, inputs, output)` keeps what
        `backward(ctx, *grads)` needs to give a gradient, or None, for each argument. Made of differentiable operations
        it can be differentiated again. Without it, differentiating raises.
    autocast : "lower" or None
        "lower": within `torch.autocast`, arguments of 16 or 32-bit floats are cast to its dtype, but for those that are
        written to.
    vmap : callable, optional
        As `torch.library.register_vmap` takes it: `vmap(info, in_dims, *args)` gives (output, out_dims). By default the
        operation runs once for each example.
    flops : callable, optional
        As `torch.utils.flop_counter.register_flop_formula` takes it: `flops(*shapes, out_shape)` counts the
        floating-point operations of a call.

    Returns
    -------
    callable
        Makes an `Operation` of a function. A second one of a name and schema replaces the first.

    Raises
    ------
    ValueError
        If the schema has no namespace, or cutepy's own; the options contradict it; its results share memory with
        arguments; its name is registered with another schema; or the function has other defaults.

    Examples
    --------
    >>> import torch
    >>> @register("doctest::double(Tensor x) -> Tensor", reference=lambda x: 2 * x)
    ... def double(x):
    ...     raise NotImplementedError("launch a kernel here")
    >>> double(torch.ones(2)), double.op
    (tensor([2., 2.]), <OpOverload(op='doctest.double', overload='default')>)
    """
    name, _, _ = schema.partition("(")
    if name.count("::") != 1 or "->" not in schema:
        raise ValueError(f'schema must be "namespace::name(arguments) -> results", got {schema!r}')
    if "." in name:
        raise ValueError(
            f"schema must name an operation without an overload, got {name}; leave out what follows the dot"
        )
    if autocast not in (None, "lower"):
        raise ValueError(f'autocast must be "lower" or None, got {autocast!r}')
    if "!" in schema and (backward or vmap):
        raise ValueError(f"{name} writes to an argument, which has neither a derivative nor a vmap rule")

    declared = torch._C.parse_schema(schema)
    if any(result.alias_info is not None for result in declared.returns):
        raise ValueError(
            f"{name} must give new tensors, got {schema!r}, whose results share memory with arguments; return nothing, "
            '"-> ()", of what is written to an argument'
        )
    if name in _registered and str(declared) != str(_registered[name].op._schema):
        raise ValueError(
            f"{name} is registered as {_registered[name].op._schema}, which its callers rely on, and can be replaced "
            f"by an operation of that schema only, got {declared}; use another name"
        )

    def decorate(kernel: Callable[P, R]) -> Operation[P, R]:
        _check_kernel(name, kernel, declared.arguments)
        if backward and any(a.kwarg_only and "Tensor" in str(a.type) for a in declared.arguments):
            raise ValueError(f"{name} has a backward, which gives none to a tensor by keyword only; make it positional")
        if name in _registered:
            _registered[name].library._destroy()
        operation = Operation(schema, kernel, reference)
        _registered[name] = operation
        if flops:
            FORMULAS[operation.op.overloadpacket] = flops
        torch.library.register_fake(operation.op, operation.completed(fake or reference), lib=operation.library)
        if operation.mutated:
            register_mutation(operation)
        else:
            rule = vmap or one_by_one(operation)
            register_derivative(operation, setup_context, backward, rule)
            if not operation.has_tensors_by_keyword:
                torch.library.register_vmap(name, rule, lib=operation.library)
        if autocast:
            operation.lowers = True
            register_autocast(operation)
        return operation

    return decorate


def _check_kernel(name: str, kernel: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Refuse a function under a name that is cutepy's, and one whose defaults are others than the schema's."""
    if name.startswith("cutepy::") and not str(kernel.__module__).startswith("cutepy."):
        raise ValueError(f"{name} is in the namespace of cutepy's own operations; use one of yours")
    taken = inspect.signature(kernel).parameters
    for argument in arguments:
        parameter = taken.get(argument.name)
        if parameter is None or parameter.default is parameter.empty or not isinstance(parameter.default, _PLAIN):
            continue
        if not argument.has_default_value() or argument.default_value != parameter.default:
            stated = argument.default_value if argument.has_default_value() else "none"
            raise ValueError(
                f"{name} has the default {parameter.default!r} for {argument.name} in its function, and {stated} in "
                "its schema, which is what callers get; let them be equal, or leave out the function's"
            )


_PLAIN = (bool, int, float, str)
