"""What a model, or an exported ticket, says of one picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """A class that a picture may belong to.

    >>> import rivals
    >>> choice = rivals.Choice("cat", task="animals", confidence=0.9)
    >>> choice.label
    'cat'
    """

    label: str
    task: str
    confidence: float  # probability among the classes that could be answered, 0 to 1


@dataclass(frozen=True)
class Answer:
    """The class of a picture, its task, and how confident the ticket is.

    >>> from rivals import Answer, Choice
    >>> answer = Answer((Choice("cat", "animals", 0.9), Choice("dog", "animals", 0.1)))
    >>> answer.label, answer.confidence
    ('cat', 0.9)
    >>> [choice.label for choice in answer.top(2)]
    ['cat', 'dog']
    """

    choices: tuple[Choice, ...]  # the most likely first
    rejected: bool = False  # it looks like nothing that was learned

    @property
    def label(self) -> str:
        """The class; where the picture is rejected, the most similar one."""
        return self.choices[0].label

    @property
    def task(self) -> str:
        return self.choices[0].task

    @property
    def confidence(self) -> float:
        """How probable the class is, 0 to 1, among those of all tasks or of the one that is given.

        Without an ancestor it is the probability within the task that is named.
        """
        return self.choices[0].confidence

    def top(self, count: int) -> list[Choice]:
        """The `count` most likely classes, the most likely first."""
        return list(self.choices[:count])
