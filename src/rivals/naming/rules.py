"""The rules that name the task of an image, by the word that the setting `naming.rule` takes.

confidence          the largest probability that the ticket gives
entropy             how little the ticket's probabilities are spread
energy              log-sum-exp of the ticket's scores, standardised
features            log-density of the ticket's features around its class means, standardised
pixels              log-density of the image itself, made small, among those of the task
pixels+confidence   how probable image and class are together: the two, the first one tempered
judge               keeps a few images a class, and learns from them how far to trust every ticket

All but the judge score task by task and keep no image. docs/task-unknown.md has their numbers.
"""

from __future__ import annotations

from rivals.naming.judge import Judge
from rivals.naming.rule import Rule
from rivals.naming.scores import SCORES

RULES: dict[str, Rule] = {**SCORES, "judge": Judge()}
