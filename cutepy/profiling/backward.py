"""Scopes of a backward pass: each node of autograd runs in the scope in which its forward operation was recorded.

Autograd numbers the nodes of a thread as they are made. The numbers at which the scope changes tell each node's scope;
when a backward pass begins, the nodes of its graph get hooks that enter it.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Protocol

from cutepy.profiling.recording import ScopeCall

NAME = "backward"
"""Name of the scope of backward kernels, within the scope of the forward ones."""
_ENGINE = "_engine_run_backward"
"""Function by which torch begins every backward pass, of `torch.autograd` and of `torch.autograd.graph`."""
_UNNUMBERED = 2**64 - 1
"""Sequence number of nodes that accumulate gradients in leaves: no forward operation made them."""


class Passes(Protocol):
    """Recorder of passes through scopes."""

    def new_call(self, call: ScopeCall) -> int:
        """Add a pass, and return its place."""

    def push(self, entered: None, place: int) -> None:
        """Attribute the calling thread's launches to a pass until `pop`."""

    def pop(self) -> None:
        """Undo the calling thread's last `push`."""


class BackwardScopes:
    """Scopes of the nodes of autograd, for a recorder.

    Parameters
    ----------
    recorder : Passes
    """

    def __init__(self, recorder: Passes) -> None:
        self._recorder = recorder
        self._changes: dict[int, tuple[list[int], list[int | None]]] = {}
        self._replaced: list[tuple[Any, Callable[..., Any]]] = []

    def changed(self, place: int | None) -> None:
        """Assign the nodes that the calling thread makes from now on to a scope, or to none."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "autograd"):
            return
        self.start()
        numbers, places = self._changes.setdefault(threading.get_ident(), ([], []))
        number = torch.autograd._get_sequence_nr()
        if numbers and numbers[-1] == number:
            places[-1] = place
        else:
            numbers.append(number)
            places.append(place)

    def start(self) -> None:
        """Make backward passes enter scopes, if torch is loaded."""
        torch: Any = sys.modules.get("torch")
        if torch is None or self._replaced:
            return
        for module in (torch.autograd, torch.autograd.graph):
            run = getattr(module, _ENGINE)
            self._replaced.append((module, run))
            setattr(module, _ENGINE, self._entering(run))

    def stop(self) -> None:
        """Remove the hooks of backward passes."""
        for module, run in self._replaced:
            setattr(module, _ENGINE, run)
        self._replaced.clear()

    def _entering(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def run_backward(outputs: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            hooks = self._hook(outputs)
            try:
                return run(outputs, *arguments, **named)
            finally:
                for hook in hooks:
                    hook.remove()

        return run_backward

    def _hook(self, outputs: Any) -> list[Any]:  # noqa: ANN401
        """Add a hook to each node of a graph: the node enters the scope in which it was made."""
        recorder, passes, hooks = self._recorder, {}, []
        for node in _nodes(outputs):
            place = self._place(node._sequence_nr())
            if place is None:
                continue
            if place not in passes:
                passes[place] = recorder.new_call(ScopeCall(NAME, place))
            hooks.append(node.register_prehook(lambda _, within=passes[place]: recorder.push(None, within)))
            hooks.append(node.register_hook(lambda *_: recorder.pop()))
        return hooks

    def _place(self, number: int) -> int | None:
        """Find the scope in which a node was made: by the calling thread if it made any in a scope, else by another."""
        if number == _UNNUMBERED:
            return None
        own = threading.get_ident()
        for thread in sorted(self._changes, key=lambda each: each != own):
            numbers, places = self._changes[thread]
            found = bisect_right(numbers, number) - 1
            if found >= 0 and places[found] is not None:
                return places[found]
        return None


def _nodes(outputs: Any) -> list[Any]:  # noqa: ANN401
    """List the nodes that a backward pass from outputs may run, each once."""
    found: dict[Any, None] = {}
    left = [edge for each in outputs if (edge := getattr(each, "grad_fn", None) or getattr(each, "node", None))]
    while left:
        node = left.pop()
        if node not in found:
            found[node] = None
            left += [following for following, _ in node.next_functions if following is not None]
    return list(found)
