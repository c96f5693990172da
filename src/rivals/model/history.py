"""The history of a model: one line for each lesson, refinement and drop, chained by hashes.

    learn MARK       a task was learned; it gets the next number, from 0 on
    refine N MARK    task N was learned again
    drop N           task N was taken out
    after LINK       all before this was left out; LINK is the hash that it ended with
    found MARK       a task that was there when this history began; it gets the next number

A mark is a checksum of all that makes up a ticket (`ModelFolder.mark`). The hash of a line covers
the line and the hash before it, so the newest hash stands for everything that ever happened.
Whoever notes it can prove later that the tickets of that day were not changed by one bit. Names
of tasks do not occur: a dropped task leaves none behind.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rivals.errors import RivalsError
from rivals.model import limits

LINE = r"learn [0-9a-f]{64}|refine \d{1,9} [0-9a-f]{64}|drop \d{1,9}"
START = r"found [0-9a-f]{64}|after [0-9a-f]{64}"
PATTERN = re.compile(f"{LINE}|{START}")
SHORTEST = 16  # letters of a hash by which a link may be named


class BrokenHistoryError(ValueError):
    """Lines that cannot follow one another."""


@dataclass(frozen=True)
class ModelState:
    """Which tickets there are after a line: number → mark, in the order of the tasks."""

    link: str  # the hash of the line
    marks: dict[int, str]


@dataclass(frozen=True)
class ModelHistory:
    """All lines, the oldest first."""

    lines: tuple[str, ...] = ()

    @classmethod
    def begin(cls, marks: Sequence[str], after: str = "") -> ModelHistory:
        """A history of tasks that are there already."""
        first = (f"after {after}",) if after else ()
        return cls((*first, *(f"found {mark}" for mark in marks)))

    @property
    def newest(self) -> str:
        """The hash of the last line; nothing where there is none."""
        return self.now().link

    def now(self) -> ModelState:
        """The tickets after the last line."""
        last = deque(self._replay(), maxlen=1)
        return last[0] if last else ModelState("", {})

    def at(self, link: str) -> ModelState | None:
        """The tickets after the line whose hash begins with `link`; None where there is none."""
        if len(link) < SHORTEST or not re.fullmatch("[0-9a-f]{1,64}", link):
            raise RivalsError(
                f"--since is '{link[:80]}', but a hash of the history was expected, as `rivals "
                f"info` shows it: at least {SHORTEST} letters of 0-9 and a-f."
            )
        for state in self._replay():
            if state.link.startswith(link):
                return ModelState(state.link, dict(state.marks))
        return None

    def add(self, event: str, mark: str = "", place: int | None = None) -> ModelHistory:
        """One event more; `place` is that of its task among those that are there."""
        words = [event]
        if place is not None:
            words.append(str(list(self.now().marks)[place]))
        added = ModelHistory((*self.lines, " ".join([*words, mark]).rstrip()))
        if len(added.lines) <= limits.HISTORY:
            return added
        end = added.now()
        return ModelHistory.begin(list(end.marks.values()), end.link)

    def _replay(self) -> Iterator[ModelState]:
        """The state after every line; its marks are one dictionary that changes."""
        link, marks, count = "", dict[int, str](), 0
        for place, line in enumerate(self.lines):
            event, *words = line.split(" ")
            if event in ("learn", "found"):
                marks[count] = words[0]
                count += 1
            elif event == "refine" and int(words[0]) in marks:
                marks[int(words[0])] = words[1]
            elif event == "drop" and int(words[0]) in marks:
                del marks[int(words[0])]
            elif event != "after" or place > 0:
                raise BrokenHistoryError(line)
            link = hashlib.sha256(f"{link}\n{line}".encode()).hexdigest()
            yield ModelState(link, marks)
