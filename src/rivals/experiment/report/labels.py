"""The label of each system, and the settings in which it differs from the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from rivals.experiment.report.groups import NAMES, Group

MOST = 4  # settings in a label
PRETRAINED = "(pretrained)"  # a system that starts from a trained network is never unmarked


def label_groups(groups: list[Group]) -> None:
    """Label each group by its method; if a method occurs twice, add the settings that differ.

    Settings that most systems of the section have are left out: `TWTA` and `TWTA J = 32`.
    """
    usual = _usual(groups)
    by_method: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_method[group.method].append(group)
    for method, same in by_method.items():
        settings = [group.settings for group in same]
        keys = list(dict.fromkeys(key for each in settings for key in each))
        differing = [key for key in keys if len({repr(s.get(key)) for s in settings}) > 1]
        beside = [key for key in differing if key != "preset"]
        if len(beside) == 1:  # clearer than the name of a preset
            differing = beside
        elif "preset" in differing and len({s["preset"] for s in settings}) == len(same):
            differing = ["preset"]
        for variant, group in enumerate(same):
            group.variant = variant
        for most in range(2, MOST + 1):  # as few as tell them apart
            for group, values in zip(same, settings, strict=True):
                odd = [key for key in differing if usual.get(key, "") != repr(values.get(key))]
                texts = [_as_text(key, values[key]) for key in odd if key in values][:most]
                name, mark = NAMES.get(method, method), PRETRAINED * bool(group.ancestor)
                group.label = " ".join(filter(None, [name, ", ".join(texts), mark]))
            if len({group.label for group in same}) == len(same):
                break
        for label in {group.label for group in same}:
            alike = [group for group in same if group.label == label]
            for number, group in enumerate(alike if len(alike) > 1 else [], start=1):
                group.label += f" ({number})"


def differences(groups: list[Group]) -> list[str]:
    """The systems that have other settings than most, one sentence per set of settings.

    Only settings that every system has count, and none that a label already names.
    """
    usual = _usual(groups)
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for group in groups:
        values = group.settings.items()
        odd = (
            _as_text(key, value)
            for key, value in values
            if usual.get(key, "") not in ("", repr(value))
        )
        texts = tuple(each for each in odd if each not in group.label)
        if texts:
            alike[texts].append(group.label)
    return [f"{', '.join(labels)}: {', '.join(texts)}." for texts, labels in alike.items()]


def pretrained(groups: list[Group]) -> list[str]:
    """What the mark means: one sentence, where a system has it."""
    names = sorted({group.ancestor for group in groups if group.ancestor})
    if not names:
        return []
    word = "ancestor" if len(names) == 1 else "ancestors"
    meaning = (
        f"{PRETRAINED}: starts from a network that was trained before on other images ({word} "
        f"{', '.join(names)}); compare these systems only with each other."
    )
    if all(group.ancestor for group in groups):
        return [meaning]
    return [f"{meaning} The others start from random weights, and bold is the best of those."]


def _usual(groups: list[Group]) -> dict[str, str]:
    """The value that most systems have of each setting that every system has."""
    settings = [group.settings for group in groups]
    shared = set.intersection(*(set(each) for each in settings))
    found = {}
    for key in shared:
        counts = Counter(repr(each[key]) for each in settings).most_common(2)
        if len(counts) == 1 or counts[0][1] > counts[1][1]:
            found[key] = counts[0][0]
    return found


def _as_text(key: str, value: Any) -> str:
    text = "-".join(map(str, value)) if isinstance(value, list) else str(value)
    return {"units": f"J = {text}", "preset": text}.get(key, f"{key} {text}")
