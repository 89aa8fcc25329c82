"""`tune`: compile the candidates of problems, time all in heats and the best in finals, keep the winners.

All candidates of a problem are timed in turns by a short protocol, the heat. The best few, and the candidate that is
chosen without tuning, are timed in turns by the full protocol, the final. A candidate with wrong results can't win.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutepy.benchmark import Protocol, compare
from cutepy.tune.heats import Heats
from cutepy.tune.journal import Files, Heat, Journal
from cutepy.tune.ranks import Ranks, ranks
from cutepy.tune.space import Settings
from cutepy.tune.timing import Compare, Note, Pair, Timer, TuningError, key_of_pair
from cutepy.tune.tunable import Tunable
from cutepy.tune.winners import Winner, folder, keep, key_of

FINAL = Protocol()
FINALISTS = 5


@dataclass(frozen=True)
class Tuning:
    """Configuration of a tuning run; all fields but the first have defaults.

    Attributes
    ----------
    tunable : Tunable
    device : str
        The kind of GPU that winners are kept for; the name of torch's current one if empty.
    finalists : int
        Candidates of each problem that meet in the final, besides the default.
    resume : bool
        True if heats of an earlier run count.
    keep : bool
        True if winners and heats are kept on the disk.
    prune : float, optional
        Candidates that are predicted to take more than so many times the shortest predicted time of their problem are
        left out; 1 or more.
    compare : callable
        Timer of candidates.
    note : callable
        Is told of the progress.
    """

    tunable: Tunable
    device: str = ""
    finalists: int = FINALISTS
    resume: bool = True
    keep: bool = True
    prune: float | None = None
    compare: Compare = compare
    note: Note = lambda what, done, total: None

    def __post_init__(self) -> None:
        """Refuse a factor that leaves nothing."""
        if self.prune is not None and self.prune < 1:
            raise ValueError(f"prune must be 1 or more, as the best candidate stays, got {self.prune}")

    def run(self, problems: Iterable[Settings]) -> list[Winner]:
        """Tune problems: problems -> winners, in the same order.

        Under torchrun, ranks share candidates in the heats and problems in the finals, and all get all winners.

        Raises
        ------
        TuningError
            If no candidate of some problem works; winners of the others are kept all the same.
        ValueError
            If two problems are the same, one has no candidates, or no GPU is here and no device is named.
        """
        asked = [dict(problem) for problem in problems]
        keys = [key_of(problem) for problem in asked]
        if len(set(keys)) < len(keys):
            raise ValueError(f"problems must differ, got {next(key for key in keys if keys.count(key) > 1)} twice")
        with ranks() as together:
            return _Run(self, together).tune(asked)


def current_device() -> str:
    """Return the name of torch's current GPU, such as "NVIDIA H200".

    Raises
    ------
    ValueError
        If torch sees no GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise ValueError("tuning needs a GPU, and torch sees none; time candidates where the kernel is to run")
    return str(torch.cuda.get_device_name())


class _Run:
    """One rank's part of a tuning."""

    def __init__(self, tuning: Tuning, together: Ranks) -> None:
        self._tuning, self._ranks, self._tunable = tuning, together, tuning.tunable
        self._device = tuning.device or current_device()
        files = Files(folder(self._device), self._tunable.name, together.rank) if tuning.keep else None
        self._journal = Journal(files, self._tunable.sources_digest(), resume=tuning.resume)
        self._timer = Timer(self._tunable, tuning.compare, tuning.note, is_shown=together.rank == 0)

    def tune(self, problems: Sequence[Settings]) -> list[Winner]:
        pairs = [(problem, candidate) for problem in problems for candidate in self._candidates(problem)]
        pairs = self._pruned(pairs)
        mine = self._ranks.share(pairs)
        Heats(self._timer, self._journal).run(mine)
        heats: dict[tuple[str, str], Heat] = {}
        for part in self._ranks.gather({key_of_pair(pair): self._journal.heat(*pair) for pair in mine}):
            heats |= part
        winners, failed = self._finals(self._ranks.share(problems), pairs, heats)
        by_problem = {key_of(won.problem): won for part in self._ranks.gather(winners) for won in part}
        failed = [text for part in self._ranks.gather(failed) for text in part]
        found = [by_problem[key] for key in map(key_of, problems) if key in by_problem]
        if self._tuning.keep and found and self._ranks.local_rank == 0:
            keep(self._device, self._tunable.name, found)
        if failed:
            raise TuningError("; ".join(failed))
        return found

    def _pruned(self, pairs: list[Pair]) -> list[Pair]:
        """Leave out candidates that are predicted to be slow, but for the default; each rank predicts its share."""
        limit = self._tuning.prune
        if limit is None:
            return pairs
        mine = self._ranks.share(pairs)
        self._tuning.note("predicting", 0, len(mine))
        own = zip(map(key_of_pair, mine), self._tunable.predict(mine), strict=True)
        predicted = {key: us for part in self._ranks.gather(dict(own)) for key, us in part.items() if us is not None}
        self._tuning.note("predicting", len(mine), len(mine))
        best: dict[str, float] = {}
        for (problem, _), us in predicted.items():
            best[problem] = min(us, best.get(problem, math.inf))

        def stays(pair: Pair) -> bool:
            us = predicted.get(key_of_pair(pair))
            return us is None or us <= limit * best[key_of(pair[0])] or pair[1] == self._tunable.default(pair[0])

        return [pair for pair in pairs if stays(pair)]

    def _candidates(self, problem: Settings) -> list[Settings]:
        """List the candidates of a problem, the default among them, each once."""
        default = self._tunable.default(problem)
        every = [*([default] if default is not None else []), *self._tunable.candidates(problem)]
        found = {key_of(candidate): candidate for candidate in every}
        if not found:
            raise ValueError(
                f"the problem {key_of(problem)} must have a candidate, and {self._tunable.name} has none for it: its "
                "rules leave out all, and `Space.left_out` counts what each does"
            )
        return list(found.values())

    def _finals(
        self,
        problems: Sequence[Settings],
        pairs: Sequence[Pair],
        heats: Mapping[tuple[str, str], Heat],
    ) -> tuple[list[Winner], list[str]]:
        """Run the finals of this rank's problems; return winners, and errors for problems without one."""
        winners: list[Winner] = []
        without: list[str] = []
        for done, problem in enumerate(problems):
            self._tuning.note("finals", done, len(problems))
            own = {key_of(pair[1]): pair[1] for pair in pairs if key_of(pair[0]) == key_of(problem)}
            ran = {key: heats[key_of(problem), key] for key in own}
            timed = sorted((key for key in own if not ran[key].failed), key=lambda key: ran[key].us)
            default = self._tunable.default(problem)
            first = [] if default is None else [key_of(default)]
            chosen = list(dict.fromkeys([*first, *timed[: self._tuning.finalists]]))
            failed = [heat.failed for heat in ran.values() if heat.failed]
            found, wrong = self._final(problem, [own[key] for key in chosen if key in timed])
            if found:
                best = min(found, key=lambda key: found[key])
                default_us = found.get(first[0]) if first else None
                winners.append(Winner(problem, own[best], found[best], default_us, len(timed)))
            else:
                without.append(f"no candidate of {key_of(problem)} works, of {len(own)}: {(failed + wrong)[0]}")
        self._tuning.note("finals", len(problems), len(problems))
        return winners, without

    def _final(self, problem: Settings, chosen: Sequence[Settings]) -> tuple[dict[str, float], list[str]]:
        """Time candidates in turns, without those with wrong results, whose errors are reported."""
        compiled = self._timer.compile([(problem, candidate) for candidate in chosen])
        trial = self._timer.trial(problem)
        right: dict[str, tuple[Any, Settings]] = {}
        wrong: list[str] = []
        for candidate in chosen:
            function = compiled[key_of_pair((problem, candidate))]
            trial.launch(function, candidate, 0)
            if complaint := trial.complaint():
                wrong.append(complaint)
                self._journal.note(problem, candidate, Heat(math.inf, f"wrong results: {complaint}"))
            else:
                right[key_of(candidate)] = (function, candidate)
        return (self._timer.time(problem, right, FINAL) if right else {}), wrong
