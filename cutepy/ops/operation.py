"""An operation of PyTorch, as torch and its callers see it; and when a call goes past torch's dispatcher.

The dispatcher and its Python bindings cost several microseconds a call, and a plain eager call does not need them.
`road` looks for everything that observes calls in the dispatcher: transforms such as `torch.vmap`, modes such as
`FakeTensorMode`, tensor subclasses and other objects with `__torch_function__`, tracing, and the profiler. Autograd and
autocast are served without the dispatcher.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad, profiler
from torch.overrides import has_torch_function
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from cutepy.ops.distributed import Rule, compute, register_rule, tell_dtensor
from cutepy.profiling.scopes import STATE, scope
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

P = ParamSpec("P")
R = TypeVar("R")
Formula = Callable[..., int]
FORMULAS: dict[Any, Formula] = {}
"""Formulas of floating-point operations, by torch's names of the operations."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = frozenset((type(None), bool, int, float, str))
"""Types of most arguments that are no tensors."""

dispatch_modes = torch._C._len_torch_dispatch_stack
_autocast = torch._C._is_any_autocast_enabled
AUTOCAST_KEYS = {
    "cuda": torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA),
    "cpu": torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU),
}
"""The dispatcher's keys of autocast, by the devices that it serves."""
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._is_tracing
_modes = torch._C._len_torch_function_stack
_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # also one that has left its transform
_batched = torch._C._functorch.is_legacy_batchedtensor  # of autograd's is_grads_batched


CPU, GPU, GRADIENT = 1, 2, 4
"""Roads past the dispatcher: where a call's tensors are, and whether autograd must see it."""


def road(arguments: tuple[object, ...]) -> int:
    """Find the road past the dispatcher of a call with these arguments: `CPU` or `GPU`, with `GRADIENT` or without.

    Not for use under `torch.compile`, which is asked for first, by `torch.compiler.is_compiling()`.

    Returns
    -------
    int
        0 if something would see the call at the dispatcher.
    """
    if (
        dispatch_modes()
        or has_torch_function(arguments)  # also of modes
        or _transform() is not None
        or _tracing()
        or forward_ad._current_level >= 0
        or profiler._is_profiler_enabled
    ):
        return 0
    found, has_gradient = CPU, False
    for argument in arguments:
        kind = type(argument)
        if kind in _NUMBERS:
            continue
        if kind in _PLAIN:
            tensor: torch.Tensor = argument  # type: ignore[assignment]
            if tensor.is_neg() or _wrapped(tensor) or _batched(tensor):
                return 0
            if tensor.requires_grad:
                has_gradient = True
            if tensor.is_cuda:
                found = GPU
            elif not tensor.is_cpu:
                return 0
        elif isinstance(argument, torch.Tensor):
            return 0
    return found + GRADIENT if has_gradient and torch.is_grad_enabled() else found


class PassesOperations:
    """Base of modes of `__torch_function__` that call operations as they are: no operation needs to be seen by them."""


def _is_passed_on() -> bool:
    """Return whether the innermost mode of `__torch_function__` calls operations as they are."""
    count = _modes()
    return count > 0 and isinstance(torch._C._get_function_stack_at(count - 1), PassesOperations)


def _past_modes(function: Callable[..., R], *arguments: Any, **named: Any) -> R:  # noqa: ANN401
    """Call a function past modes that call operations as they are, as torch pops a mode while it runs."""
    if not _is_passed_on():
        return function(*arguments, **named)
    mode = torch._C._pop_torch_function_stack()
    try:
        return _past_modes(function, *arguments, **named)
    finally:
        torch._C._push_on_torch_function_stack(mode)


def past_modes(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that computes by operations: it runs past modes that call these as they are.

    A mode is told of each attribute of a tensor that is read, at microseconds of the host.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if torch.compiler.is_compiling() or not _modes():
            return function(*arguments, **named)
        return _past_modes(function, *arguments, **named)

    return call


def unobserved(way: int) -> bool:
    """Tell whether nothing but the implementation would see a call of this road (`road`): no profile, nor autograd."""
    return 0 < way < GRADIENT and STATE.recorder is None and not _autocast()


def only_launches(way: int) -> bool:
    """Return whether a call of this road launches kernels on a GPU, which nothing else would see but autograd."""
    return way & GPU > 0 and STATE.recorder is None and EXECUTION.backend is None and not _autocast()


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
    lowers : frozenset of str
        The arguments that `torch.autocast` casts.
    invariant : torch._ops.OpOverload or None
        Operation that torch sees within `batch_invariant` (`register_both`).
    sharding : callable or None
        Tells how DTensors are sharded (`shard_by`); without it, DTensor refuses them.
    lowered : callable or None
        Takes autocast's dtype and the arguments, and casts those of `lowers` (`register_autocast`).
    gives_list : bool
        True if the result is a list of tensors.
    differentiated : callable or None
        Takes an implementation and all arguments, and computes past the dispatcher so that autograd sees it
        (`register_derivative`). None if the operation writes to an argument, has arguments by keyword only, or gives
        lists among other results.
    touches_all : bool
        True if a call needs each element of its arguments, and not some pages or rows of a cache: a profile then counts
        their bytes.
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
        self.lowers: frozenset[str] = frozenset()
        self.invariant: Any = None
        self.sharding: Rule | None = None
        self.lowered: Callable[[torch.dtype, Sequence[Any]], tuple[Any, ...]] | None = None
        self.differentiated: Callable[..., Any] | None = None
        self.touches_all = True
        self._lists = tuple(n for n, a in enumerate(arguments) if "List[" in str(a.type) and "Tensor" in str(a.type))
        self.has_lists = bool(self._lists)
        self._results = tuple(str(each.type) for each in self.op._schema.returns)
        self.gives_list = self._results == ("List[Tensor]",)
        self._plain = {("Tensor",): torch.Tensor, (): type(None)}.get(self._results)
        self._defaults = {a.name: a.default_value for a in arguments if not a.kwarg_only}
        self._default_values = tuple(self._defaults.values())
        self._required = sum(not a.has_default_value() for a in arguments if not a.kwarg_only)
        self._defaults_by_name = {a.name: a.default_value for a in arguments if a.kwarg_only}
        self._launch, self._refer = self.completed(kernel), self.completed(reference)
        self._direct: Callable[..., Any] = self._launch
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
        if not named and self._required <= len(arguments) < len(self._default_values):
            arguments = (*arguments, *self._default_values[len(arguments) :])  # type: ignore[assignment]
        if torch.compiler.is_compiling() or named or len(arguments) != len(self._default_values):
            return self._dispatched(arguments, named)  # type: ignore[no-any-return]
        seen: tuple[Any, ...] = arguments
        for place in self._lists:
            listed: Any = arguments[place]
            if listed:
                seen = (*seen, *listed)
        way = road(seen)
        return self.along(way, arguments)  # type: ignore[no-any-return]

    def along(self, way: int, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401
        """Compute with all arguments by position, of which the road (`road`) is known; 0 under `torch.compile`."""
        if not way or (way > GRADIENT and self.differentiated is None):
            return self._dispatched(arguments, {})
        device = "cuda" if way & GPU else "cpu"
        if self.lowered is None or not torch.is_autocast_enabled(device):
            return self._compute(way, arguments)
        lowered = self.lowered(torch.get_autocast_dtype(device), arguments)
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS[device]):
            return self._compute(way, lowered)

    def _dispatched(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Compute by way of torch's dispatcher."""
        if not torch.compiler.is_compiling():
            if _is_passed_on():
                return _past_modes(self, *arguments, **named)
            tell_dtensor()
            if dispatch_modes():
                tell_counters()
        op = self.invariant if INVARIANCE.on and self.invariant is not None else self.op
        return op(*arguments, **named)

    def _compute(self, way: int, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401
        """Compute past the dispatcher."""
        if way & GPU:
            implementation = self._direct if STATE.recorder is None else self._launch
        else:
            implementation = self._on_cpu
        if way > GRADIENT:
            assert self.differentiated is not None, "is asked for by __call__"
            return self.differentiated(implementation, arguments)
        result = implementation(*arguments)
        if self.mutated:  # afterwards, as torch does: what was refused was not written to
            self.count_writing(arguments, {})
        return result

    def trust(self) -> None:
        """Leave out the checks of the kernel's results on a GPU: tests have shown them to be new and of the schema."""
        self._direct = self.kernel

    def shard_by(self, rule: Rule) -> None:
        """Compute DTensors by their local tensors, sharded by a rule."""
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
        """Call a function with all arguments, and check that its results are those of the schema: new tensors."""

        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            arguments, named = self.complete(arguments, named)
            if STATE.recorder is None or function is not self.kernel:
                results = function(*arguments, **named)
            else:
                results = self._in_scope(arguments, named)
            if type(results) is not self._plain:
                self._check_results(function, results)
            if results is not None:
                self._check_new(_tensors(results), (*arguments, *named.values()))
            return results

        return call

    def _in_scope(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Launch within a scope of the operation's name, which carries the FLOPs and bytes of a call."""
        with scope(self.op._schema.name) as entered:
            results = self.kernel(*arguments, **named)
            entered.flops, entered.bytes, entered.precision = self._needs(arguments, named, results)
        return results

    def _needs(
        self,
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
        results: Any,  # noqa: ANN401
    ) -> tuple[int | None, int | None, str]:
        """Count the operations and bytes of a call, and tell the type of its products."""
        formula = FORMULAS.get(self.op.overloadpacket)
        shapes = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.shape, (arguments, dict(named), results))
        flops = None if formula is None else formula(*shapes[0], **shapes[1], out_shape=shapes[2])
        tensors = [each for each in pytree.tree_leaves((arguments, named)) if isinstance(each, torch.Tensor)]
        moved = {id(each): each.numel() * each.element_size() for each in (*tensors, *_tensors(results))}
        width = tensors[0].element_size() if tensors else 2
        bytes_ = sum(moved.values()) if self.touches_all else None
        return flops, bytes_, {1: "8-bit", 2: "16-bit"}.get(width, "tf32")

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
                f"{getattr(function, '__qualname__', function)} must return the results of the schema "
                f"{self.op._schema}, got {type(results).__name__ if got is None else f'({got})'}; change one of them"
            )

    def _check_new(self, results: Sequence[torch.Tensor], arguments: Sequence[Any]) -> None:
        """Refuse results in memory of others: compiled code takes them to be apart, and writes accordingly."""
        given = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        if self.has_lists:
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
        """Increment the autograd version of the arguments that the operation writes to."""
        for n, name in self.mutated:
            written = arguments[n] if n < len(arguments) else named.get(name)
            for tensor in _tensors(written):
                torch.autograd.graph.increment_version(tensor)

    def _on_cpu(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return (self._launch if EXECUTION.backend is not None else self._refer)(*arguments, **named)


def _tensors(value: Any) -> Sequence[torch.Tensor]:  # noqa: ANN401
    """List the tensors of an argument or result."""
    if isinstance(value, torch.Tensor):
        return (value,)
    return [item for item in value if isinstance(item, torch.Tensor)] if isinstance(value, (tuple, list)) else ()


def _is_of(kind: str, result: object) -> bool:
    """Return whether a result is of a schema's type, of those that have tensors; numbers are torch's to check."""
    if "Tensor" not in kind:
        return True
    kinds = (torch.Tensor, type(None)) if "Optional[" in kind else (torch.Tensor,)
    if kind.startswith("List["):
        return isinstance(result, (tuple, list)) and all(isinstance(each, kinds) for each in result)
    return isinstance(result, kinds)


def tell_counters() -> None:
    """Register the formulas with `FlopCounterMode`, and with the active mode, which has copied the registry.

    Its module takes a fifth of a second to import, and brings Triton, so that it is left to whoever counts.
    """
    counting = sys.modules.get("torch.utils.flop_counter")
    if counting is None:
        return
    wrapped = {operation: counting.shape_wrapper(formula) for operation, formula in FORMULAS.items()}
    counting.flop_registry.update(wrapped)
    for mode in _get_current_dispatch_mode_stack():
        counter = getattr(mode, "counter", None)
        if isinstance(counter, counting.FlopCounterMode):
            counter.flop_registry = wrapped | counter.flop_registry
