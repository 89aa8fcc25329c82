"""Losses of models of other classes: a `loss_function` of next tokens becomes cutepy's.

Hugging Face's models call an attribute of this name with logits and labels, which converts the logits to float32 and
calls `torch.nn.functional.cross_entropy`. cutepy's reads the logits as they are, and computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutepy.kernels.rows.tiling import MOST_COLUMNS
from cutepy.nn.code_names import names_of
from cutepy.ops.cross_entropies import LABELS, cross_entropy
from cutepy.ops.operation import past_modes
from cutepy.ops.row_tensors import ROW_DTYPES

FUNCTION = "loss_function"
"""Name of the attribute that computes the loss of logits (batch, tokens, classes) and labels (batch, tokens)."""
CALLED = ("cross_entropy", "CrossEntropyLoss")
"""Names of torch's losses in the code of a `forward` that computes one itself."""


class NextTokenLoss:
    """Function (logits, labels, classes) -> mean loss of each token's next label, float32, by `cutepy.ops`.

    Calls with other arguments, shapes or dtypes are passed on.

    Parameters
    ----------
    theirs : callable
        The function in whose place it stands.
    options : tuple of str
        Named arguments that it takes beside these three: of `num_items_in_batch`, by which the sum of losses is
        divided, `ignore_index`, and `shift_labels`, of the next tokens.
    """

    def __init__(self, theirs: Callable[..., Any], options: tuple[str, ...]) -> None:
        self.theirs, self.options = theirs, options

    @past_modes
    def __call__(
        self,
        logits: Any = None,  # noqa: ANN401
        labels: Any = None,  # noqa: ANN401
        vocab_size: Any = None,  # noqa: ANN401
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Compute the loss: logits (..., tokens, classes), labels (..., tokens), int."""
        unknown = others or any(name not in self.options for name, value in named.items() if value is not None)
        shifted = named.get("shift_labels")
        if unknown or not _takes(logits, labels if shifted is None else shifted, vocab_size):
            return self.theirs(logits, labels, vocab_size, *others, **named)
        ignored = -100 if named.get("ignore_index") is None else named["ignore_index"]
        if shifted is None:
            shifted = torch.nn.functional.pad(labels, (0, 1), value=ignored)[..., 1:]
        rows, target = logits.reshape(-1, vocab_size), shifted.reshape(-1).to(logits.device)
        count = named.get("num_items_in_batch")
        reduction = "mean" if count is None else "sum"
        loss = cross_entropy(rows, target, ignore_index=ignored, reduction=reduction, out_dtype=torch.float32)
        return loss if count is None else loss / (count.to(loss.device) if isinstance(count, torch.Tensor) else count)


def _takes(logits: Any, labels: Any, classes: Any) -> bool:  # noqa: ANN401
    """Tell whether cutepy computes the loss of logits and labels."""
    if not (isinstance(logits, torch.Tensor) and isinstance(labels, torch.Tensor) and isinstance(classes, int)):
        return False
    fits = logits.dim() > 1 and logits.shape[:-1] == labels.shape and logits.shape[-1] == classes
    return fits and logits.dtype in ROW_DTYPES and labels.dtype in LABELS and 1 <= classes <= MOST_COLUMNS


def computes_loss(module: torch.nn.Module) -> bool:
    """Tell whether a module's own code calls a loss that is none of its modules."""
    return bool(_called(module)) and not isinstance(module, torch.nn.CrossEntropyLoss)


def _called(module: torch.nn.Module) -> list[str]:
    """List the functions by which a module's own code computes a loss."""
    used = {*names_of(type(module))} - module._modules.keys()
    return [each for each in (FUNCTION, *CALLED) if each in used]


def adopt_loss(module: torch.nn.Module) -> str | None:
    """Replace the loss of a module that `computes_loss` by cutepy's, in place; return the reason if that is refused."""
    name, theirs = type(module).__name__, getattr(module, FUNCTION, None)
    if isinstance(theirs, NextTokenLoss):
        return "it is cutepy's"
    called = _called(module)
    if FUNCTION not in called or not callable(theirs):
        return f"the forward of {name} calls {called[0]} itself; call cutepy.ops.cross_entropy there"
    options = _options_of(theirs)
    if isinstance(options, str):
        return options
    try:
        setattr(module, FUNCTION, NextTokenLoss(theirs, options))
    except AttributeError:
        return f"the {FUNCTION} of {name} can't be set"
    return None


def _options_of(theirs: Callable[..., Any]) -> tuple[str, ...] | str:
    """Call a function, and return its options if it computes `NextTokenLoss`, or the reason why it does not."""
    chance = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 5, 7, generator=chance), torch.randint(7, (2, 5), generator=chance)
    labels[0, 1] = -100
    tried = {"ignore_index": 2, "num_items_in_batch": torch.tensor(3), "shift_labels": labels.flip(1)}
    ours, found = NextTokenLoss(theirs, (*tried,)), []
    try:
        if not _agree(theirs, ours, logits, labels, {}):
            return f"{FUNCTION} computes something else than the mean cross entropy of next tokens"
    except Exception as error:  # of whatever somebody's function does
        return f"{FUNCTION} does not take logits, labels and classes alone: {type(error).__name__}"
    for name, value in tried.items():
        try:
            known = labels.clamp(min=2) if name == "ignore_index" else labels  # torch refuses those that are no class
            if _agree(theirs, ours, logits, known, {name: value}):
                found.append(name)
        except Exception:  # calls with this option are passed on, and raise again
            continue
    return (*found,)


def _agree(
    theirs: Callable[..., Any],
    ours: NextTokenLoss,
    logits: torch.Tensor,
    labels: torch.Tensor,
    options: dict[str, Any],
) -> bool:
    given = {"logits": logits, "labels": labels, "vocab_size": logits.shape[-1], **options}
    with torch.no_grad():
        return torch.allclose(theirs(**given), ours(**given), rtol=1e-5)
