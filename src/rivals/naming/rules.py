"""The rules that name the task of an image, by the word that the setting `naming.rule` takes.

filters             one discriminant over all classes on a fixed bank of filters (the default)
confidence          the largest probability that the ticket gives
entropy             how little the ticket's probabilities are spread
energy              log-sum-exp of the ticket's scores, standardised
features            log-density of the ticket's features around its class means, standardised
pixels              log-density of the image itself, made small, among those of the task
pixels+confidence   how probable image and class are together: the two, the first one tempered
filters+judge       the same and what a few kept images a class teach of whom to believe
judge               keeps a few images a class, and learns from them how far to trust every ticket

Filters and judges compare the classes of all tasks, the others score task by task. Only judges keep
images. docs/task-unknown.md has their numbers.
"""

from __future__ import annotations

import torch

from rivals.naming.filter_rule import filter_rule
from rivals.naming.judge import Judge
from rivals.naming.rule import Rule
from rivals.naming.scores import SCORES

RULES: dict[str, Rule] = {**SCORES, "judge": Judge()}


def find_rule(name: str, channels: int, device: torch.device) -> Rule:
    """The rule of this name, for pictures with so many channels."""
    if name == "filters":
        return filter_rule(channels, device)
    if name == "filters+judge":
        return Judge(filter_rule(channels, device))
    return RULES[name]
