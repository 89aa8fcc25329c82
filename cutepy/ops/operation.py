"""An operation of PyTorch, as torch and its callers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from cutepy.ops.distributed import Rule, compute, register_rule, tell_dtensor
from cutepy.ops.eager import dispatch_modes, unobserved
from cutepy.ops.flops import tell_counters
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

P = ParamSpec("P")
R = TypeVar("R")


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
    invariant : torch._ops.OpOverload or None
        What torch is called with instead within `batch_invariant` (`register_both`).
    sharding : callable or None
        Tells how DTensors are sharded (`shard_by`); without it, DTensor refuses them.
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
        self.invariant: Any = None
        self.sharding: Rule | None = None
        # Tensors in lists are seen by the dispatcher only.
        self._lists = any("List[" in str(a.type) and "Tensor" in str(a.type) for a in arguments)
        self._results = tuple(str(each.type) for each in self.op._schema.returns)
        self._plain = {("Tensor",): torch.Tensor, (): type(None)}.get(self._results)
        self._defaults = {a.name: a.default_value for a in arguments if not a.kwarg_only}
        self._default_values = tuple(self._defaults.values())
        self._defaults_by_name = {a.name: a.default_value for a in arguments if a.kwarg_only}
        self._launch, self._refer = self.completed(kernel), self.completed(reference)
        self.__name__ = self.__qualname__ = name
        self.__doc__ = kernel.__doc__
        self.__module__ = getattr(kernel, "__module__", __name__)
        self._place = getattr(kernel, "__qualname__", name)
        self.library.impl(name, self._launch, "CUDA")
        self.library.impl(name, self._on_cpu, "CPU")

    def __repr__(self) -> str:
        return f"<operation {self.op._schema}>"

    def __reduce__(self) -> str:
        """Pickle as the function that it was made of does, by the name that it has in its module; a copy is itself."""
        return self._place

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Compute, by way of torch's dispatcher only if something else would see the call there."""
        if (
            torch.compiler.is_compiling()
            or named
            or self._lists
            or len(arguments) != len(self._defaults)
            or not (device := unobserved(arguments))
        ):
            if not torch.compiler.is_compiling():
                tell_dtensor()
                if dispatch_modes():
                    tell_counters()
            op = self.invariant if INVARIANCE.on and self.invariant is not None else self.op
            return op(*arguments, **named)  # type: ignore[no-any-return]
        implementation: Any = self._launch if device == "cuda" else self._on_cpu
        result = implementation(*arguments)
        if self.mutated:  # afterwards, as torch does: what was refused was not written to
            self.count_writing(arguments, {})
        return result  # type: ignore[no-any-return]

    def shard_by(self, rule: Rule) -> None:
        """Have DTensors computed by their local tensors, as a rule tells."""
        self.sharding = rule
        register_rule(self.op, self.library, self.on_shards)

    def on_shards(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Compute on DTensors' local tensors."""
        assert self.sharding is not None, "is asked for by shard_by, or where there is a rule"
        complete, by_name = self.complete(arguments, named)
        return compute(self.op, self.sharding, complete, by_name, frozenset(n for n, _ in self.mutated))

    def complete(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give all arguments that the schema has, by position and by name; torch leaves out those with defaults."""
        if not named and not self._defaults_by_name:
            return (*arguments, *self._default_values[len(arguments) :]), {}
        rest = list(self._defaults.items())[len(arguments) :]
        by_name = {name: named.get(name, default) for name, default in self._defaults_by_name.items()}
        return (*arguments, *(named.get(name, default) for name, default in rest)), by_name

    def completed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Have a function called with all arguments, and see that it gives what the schema says: new tensors."""

        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            arguments, named = self.complete(arguments, named)
            results = function(*arguments, **named)
            if type(results) is not self._plain:
                self._check_results(function, results)
            if results is not None:
                self._check_new(_tensors(results), (*arguments, *named.values()))
            return results

        return call

    def _check_results(self, function: Callable[..., Any], results: Any) -> None:  # noqa: ANN401
        """Refuse other results than the schema's; torch does so of calls that its dispatcher sees, by the first one."""
        given = (results,) if len(self._results) == 1 else () if results is None else results
        if (
            not isinstance(given, (tuple, list))
            or len(given) != len(self._results)
            or not all(_is_of(kind, each) for kind, each in zip(self._results, given, strict=True))
        ):
            got = ", ".join(type(each).__name__ for each in results) if isinstance(results, (tuple, list)) else None
            raise TypeError(
                f"{self.op._schema} says what is given, and {getattr(function, '__qualname__', function)} gave "
                f"{type(results).__name__ if got is None else f'({got})'}; change one of them"
            )

    def _check_new(self, results: Sequence[torch.Tensor], arguments: Sequence[Any]) -> None:
        """Refuse results in memory of others: compiled code takes them to be apart, and writes accordingly."""
        given = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        if self._lists:
            given += [tensor for argument in arguments if isinstance(argument, list) for tensor in _tensors(argument)]
        for n, result in enumerate(results):
            for other in (*given, *results[:n]):
                if torch._C._is_alias_of(result, other):  # type: ignore[attr-defined]
                    names = [*self._defaults, *self._defaults_by_name, *(f"result {k}" for k in range(n))]
                    holders = zip(names, [*arguments, *results[:n]], strict=True)
                    name = next(name for name, holder in holders if any(t is other for t in _tensors(holder)))
                    raise ValueError(
                        f"{self.op} must give new tensors, and its result {n} shares memory with {name}; give a copy, "
                        "such as by .clone()"
                    )

    def count_writing(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Have autograd know that the arguments that it writes to were written to."""
        for n, name in self.mutated:
            written = arguments[n] if n < len(arguments) else named.get(name)
            if written is not None:
                torch.autograd.graph.increment_version(written)

    def _on_cpu(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return (self._launch if EXECUTION.backend is not None else self._refer)(*arguments, **named)


def _tensors(value: Any) -> Sequence[torch.Tensor]:  # noqa: ANN401
    """List the tensors of an argument or result."""
    if isinstance(value, torch.Tensor):
        return (value,)
    return [item for item in value if isinstance(item, torch.Tensor)] if isinstance(value, (tuple, list)) else ()


def _is_of(kind: str, result: object) -> bool:
    """Tell whether a result is of a schema's type, of those that have tensors; numbers are torch's to check."""
    if "Tensor" not in kind:
        return True
    kinds = (torch.Tensor, type(None)) if "Optional[" in kind else (torch.Tensor,)
    if kind.startswith("List["):
        return isinstance(result, (tuple, list)) and all(isinstance(each, kinds) for each in result)
    return isinstance(result, kinds)
