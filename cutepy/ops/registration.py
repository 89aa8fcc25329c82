"""`register`: make an operation of PyTorch from a function that launches kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from cutepy.dsl import execution
from cutepy.ops.derivatives import register_derivative
from cutepy.ops.eager import unobserved
from cutepy.ops.rules import one_by_one, register_autocast, register_mutation

P = ParamSpec("P")
R = TypeVar("R")

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
) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an operation of PyTorch from the function below: a decorator.

    The function takes CUDA tensors, allocates the result, and launches compiled kernels (`cutepy.compile`,
    `cutepy.host.family.Family`) on them. On CPU tensors the operation computes the reference, except within
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

    Returns
    -------
    callable
        Makes an `Operation` of a function. A second one of a name replaces the first.

    Raises
    ------
    ValueError
        If the schema has no namespace, or the options contradict it.

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

    def decorate(kernel: Callable[P, R]) -> Operation[P, R]:
        if backward and any(a.kwarg_only and "Tensor" in str(a.type) for a in torch._C.parse_schema(schema).arguments):
            raise ValueError(f"{name} has a backward, which gives none to a tensor by keyword only; make it positional")
        if name in _registered:
            _registered[name].library._destroy()
        operation = Operation(schema, kernel, reference)
        _registered[name] = operation
        torch.library.register_fake(operation.op, fake or reference, lib=operation.library)
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


class Operation(Generic[P, R]):
    """An operation of PyTorch: call it with tensors.

    Attributes
    ----------
    op : torch._ops.OpOverload
        As torch knows it. Calling the operation itself is faster where only the kernel would see the call.
    kernel : callable
        Launches, for CUDA tensors.
    reference : callable
        Computes the same in plain torch.
    mutated : tuple of (int, str)
        Positions and names of the arguments that it writes to.
    library : torch.library.Library
        Holds the registration.
    lowers : bool
        Whether `torch.autocast` casts its arguments.
    """

    def __init__(self, schema: str, kernel: Callable[P, R], reference: Callable[..., Any]) -> None:
        namespace, _, declaration = schema.partition("::")
        name = declaration.partition("(")[0]
        self.library = torch.library.Library(namespace, "FRAGMENT")
        self.library.define(declaration, tags=(torch.Tag.pt2_compliant_tag,))
        self.op: Any = getattr(getattr(torch.ops, namespace), name).default
        self.kernel = kernel
        self.reference = reference
        arguments = self.op._schema.arguments
        self.mutated = tuple(
            (n, a.name) for n, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        self.has_tensors_by_keyword = any(a.kwarg_only and "Tensor" in str(a.type) for a in arguments)
        self.lowers = False
        # Tensors in lists are seen by the dispatcher only.
        self._lists = any("List[" in str(a.type) and "Tensor" in str(a.type) for a in arguments)
        self._backends = execution.backends()
        self.__name__ = self.__qualname__ = name
        self.__doc__ = kernel.__doc__
        self.__module__ = getattr(kernel, "__module__", __name__)
        self._place = getattr(kernel, "__qualname__", name)
        self.library.impl(name, kernel, "CUDA")
        self.library.impl(name, self._on_cpu, "CPU")

    def __repr__(self) -> str:
        return f"<operation {self.op._schema}>"

    def __reduce__(self) -> str:
        """Pickle as the function that it was made of does, by the name that it has in its module; a copy is itself."""
        return self._place

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Compute, by way of torch's dispatcher only if something else would see the call there."""
        if torch.compiler.is_compiling() or named or self._lists or not (device := unobserved(arguments)):
            return self.op(*arguments, **named)  # type: ignore[no-any-return]
        implementation: Any = self.kernel if device == "cuda" else self._on_cpu
        result = implementation(*arguments)
        if self.mutated:  # afterwards, as torch does: what was refused was not written to
            self.count_writing(arguments, {})
        return result  # type: ignore[no-any-return]

    def complete(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give all arguments that the schema has, by position and by name; torch leaves out those with defaults."""
        schema = self.op._schema.arguments
        rest = {a.name: named.get(a.name, a.default_value) for a in schema[len(arguments) :]}
        by_name = {a.name: rest.pop(a.name) for a in schema if a.kwarg_only}
        return (*arguments, *rest.values()), by_name

    def count_writing(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Have autograd know that the arguments that it writes to were written to."""
        for n, name in self.mutated:
            written = arguments[n] if n < len(arguments) else named.get(name)
            if written is not None:
                torch.autograd.graph.increment_version(written)

    def _on_cpu(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return (self.kernel if self._backends else self.reference)(*arguments, **named)
