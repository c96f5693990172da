"""One answer from the last frames of a stream: a hidden Markov filter over classes.

A camera shows one thing for a while, then another. Or one thing of a task follows the other, as in
a bin of parts. What is believed of kind of stream k and class c after a frame is

    belief'(k, c)  ∝  (1 - change) · Σ_d P_k(c | d) · belief(k, d) · p(frame | c)^w
                      +  change · p(frame | c)

where P_k(c | d) says what follows class d: the same class, or, nearly always in a stream of the
second kind, another one of its task. `change` is the chance that something else begins: anything,
in a stream of either kind. All classes are as likely then.

Frames resemble each other, and one that is like the one before says nothing new of what goes on. So
w is how much their evidence differs, at most 1.

"None of these" is filtered beside it, as one of two states: whether a frame was rejected says
something of that, and nothing of the class. Only numpy is needed: what runs without torch can
filter, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rivals.answer import Answer, Choice

Numbers = NDArray[np.float64]
Classes = tuple[tuple[str, tuple[str, ...]], ...]  # tasks, and the classes of each
CHOICES = 100  # classes that an answer lists, at most
LEAST = 1e-300  # likelihood; so that nothing is impossible for ever
REJECTED = (
    0.5  # of frames that show nothing known; from 0.15 to 1 as measured (docs/task-unknown.md)
)


@dataclass(frozen=True)
class Chances:
    """How a stream goes on from one frame to the next."""

    change: float = 0.05  # that something else begins, of any class of any task
    label: tuple[float, ...] = (0.02, 0.95)  # else: that another class of the task follows, by kind
    novelty: float = 4.0  # times the difference of two frames is the weight of the second


CAMERA = Chances()  # chosen on training images of CIFAR-100: benchmarks/frames.py


def update(
    belief: Numbers | None, evidence: Numbers, sizes: Sequence[int], weight: float = 1.0,
    chances: Chances = CAMERA,
) -> Numbers:  # fmt: skip
    """What is believed after one more frame: (kinds, classes), adding up to 1.

    Args:
        belief: What was believed before it; None: it is the first.
        evidence: Log probabilities of the classes of all tasks by this frame alone: (classes,).
        sizes: The number of classes of each task.
        weight: How much this frame counts, 0 to 1.
        chances: How the stream goes on.
    """
    kinds, classes = len(chances.label), len(evidence)
    likelihood = classes * np.exp(evidence - np.logaddexp.reduce(evidence))
    begins = np.tile(likelihood, (kinds, 1)) / (kinds * classes)
    if belief is None:
        return np.asarray(begins)
    goes_on = following(belief, sizes, chances.label) * np.maximum(likelihood, LEAST) ** weight
    found = (1 - chances.change) * goes_on + chances.change * begins
    return np.asarray(found / found.sum())


def following(belief: Numbers, sizes: Sequence[int], label: Sequence[float]) -> Numbers:
    """What is believed of a frame before it is seen, if nothing else has begun: (kinds, classes).

    `label` is the chance, by kind of stream, that another class of the same task follows.
    """
    counts, chance = np.asarray(sizes), np.array(label)[:, None]
    of_task = np.add.reduceat(belief, np.cumsum(counts) - counts, axis=1)
    same_task = np.repeat(of_task / counts, counts, axis=1)
    return np.asarray((1 - chance) * belief + chance * same_task)


def difference(one: Numbers, other: Numbers) -> float:
    """How much the evidence of two frames differs: 0 if it is the same, 1 if it has nothing in
    common, at most 2."""
    one, other = one - one.mean(), other - other.mean()
    size = float(one @ one + other @ other)
    return float((one - other) @ (one - other)) / size if size else 1.0


@dataclass(frozen=True)
class Evidence:
    """What one frame says by itself."""

    classes: Classes
    log_probabilities: Numbers  # of all classes, task after task: (classes,)
    rejected: bool = False  # it looks like nothing that was learned

    @classmethod
    def of_answer(cls, answer: Answer) -> Evidence:
        """What an answer says that ranks all classes of one task."""
        ranked = sorted(answer.choices, key=lambda each: each.label)
        labels = tuple(each.label for each in ranked)
        least = np.finfo(np.float64).tiny
        values = np.log(np.maximum([each.confidence for each in ranked], least))
        return cls(((answer.task, labels),), values, answer.rejected)


class FrameFilter:
    """Answers about the frames of one stream, in their order."""

    def __init__(self, reject: float | None = None, chances: Chances = CAMERA) -> None:
        """`reject` is the share of known frames that are rejected by mistake."""
        self.reject, self.chances = reject, chances
        self._last: Evidence | None = None
        self._belief: Numbers | None = None  # of classes
        self._strange: Numbers | None = None  # of being known, and of being none of these

    def __call__(self, frame: Evidence) -> Answer:
        """What the last frames show."""
        last, weight = self._last, 1.0
        if last is None or last.classes != frame.classes:  # the model has changed
            self._belief = self._strange = None
        else:
            differs = difference(frame.log_probabilities, last.log_probabilities)
            weight = min(1.0, self.chances.novelty * differs)
        self._last, sizes = frame, [len(labels) for _, labels in frame.classes]
        self._belief = update(self._belief, frame.log_probabilities, sizes, weight, self.chances)
        rejected = self.reject is not None and self._is_strange(frame, weight)
        return Answer(ranked(frame.classes, self._belief.sum(0)), rejected)

    def _is_strange(self, frame: Evidence, weight: float) -> bool:
        """Whether the last frames show nothing that is known."""
        shares = np.clip([self.reject or 0.0, REJECTED], 1e-6, 1 - 1e-6)
        said = np.log(shares if frame.rejected else 1 - shares)
        self._strange = update(self._strange, said, (1, 1), weight, self.chances)
        return bool(self._strange.sum(0)[1] > 0.5)


def ranked(classes: Classes, belief: Numbers) -> tuple[Choice, ...]:
    """The likeliest classes of all tasks, by their probability."""
    order = np.argsort(-belief, kind="stable")[:CHOICES]
    ends = np.cumsum([len(labels) for _, labels in classes])
    found = []
    for place, which in zip(order.tolist(), np.searchsorted(ends, order, "right"), strict=True):
        task, labels = classes[which]
        label = labels[place - int(ends[which]) + len(labels)]
        found.append(Choice(label, task, float(belief[place])))
    return tuple(found)
