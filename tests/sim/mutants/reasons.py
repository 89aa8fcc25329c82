"""Why some mutants may stay silent: silent.md, read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SILENT = Path(__file__).with_name("silent.md")


@dataclass(frozen=True)
class Reason:
    """An argument that mutants are harmless.

    Attributes
    ----------
    pattern : str
        A regular expression of all of a mutant's name, "kernel: operator at function: statement", to which the line
        of its source may be added, "  # source".
    argument : str
    always : bool
        Whether all such mutants are harmless; of others those that are silent.
    """

    pattern: str
    argument: str
    always: bool = True

    def explains(self, name: str, source: str = "") -> bool:
        """Tell whether it is about a mutant, whose line of source may be known."""
        return any(re.fullmatch(self.pattern, whole) for whole in (name, f"{name}  # {source}"))

    def concerns(self, kernel: str) -> bool:
        """Tell whether it is about mutants of a kernel, or of others too."""
        return re.fullmatch(self.pattern.partition(": ")[0], kernel.partition(": ")[0]) is not None


def read_reasons(path: Path = SILENT) -> list[Reason]:
    """Read the bullets of silent.md: a pattern in backquotes, two spaces, the argument.

    With "some" before, it is about those that are silent, of all that match.
    """
    text = path.read_text()
    found = re.findall(r"^- (some )?`(.+?)`  (.+?)(?=\n- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if len(found) != len(re.findall(r"^- ", text, re.MULTILINE)):
        raise ValueError(f"{path.name}: each bullet must be a pattern in backquotes, two spaces, and the argument")
    return [Reason(pattern, " ".join(argument.split()), not some) for some, pattern, argument in found]
