"""The card of a model on the Hub: what it knows, how well, how large it is, and how it is run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.hub_card import escaped, header
from rivals.model.manifest import Description, TaskFacts
from rivals.model.testing import TestReport, plus_minus

PICTURE = "confusion.png"
MOST_CLASSES = 20  # of a task that are named
MOST_TASKS = 200  # that are listed


def model_card(
    repository: str, content: Description, report: TestReport | None, license: str | None
) -> str:
    """The card, in Markdown."""
    title = repository.rpartition("/")[2]
    known = [*map(_row, content.tasks[:MOST_TASKS])]
    if len(content.tasks) > MOST_TASKS:
        known.append(f"| and {len(content.tasks) - MOST_TASKS:,} more | | | | |")
    channels, height, width = content.input_shape
    colours = "grey" if channels == 1 else "colour"
    return f"""{header(license)}
# {escaped(title)}

A model of [rivals](https://pypi.org/project/rivals/), which learns one task after another from
pictures and forgets nothing. It looks at {colours} pictures of {width} × {height} pixels, and takes
{content.total_bytes():,} bytes.

## What it knows

| task | classes | accuracy | learned from | bytes |
|---|---|--:|--:|--:|
{chr(10).join(known)}

Accuracy is percent of the pictures that were held out while learning, with half the width of its
95 % interval, the task being given. It is slightly optimistic, for these pictures also chose the
weights.

{_start(content)}{_tested(report)}
## How to run it

```bash
pip install 'rivals[hub]'
```

```python
import rivals

model = rivals.Model.from_pretrained({repository!r})
answer = model.predict("new.jpg")
print(answer.label, answer.task, answer.confidence)
```

`model.export(task, "task.onnx")` writes a file for a device that runs without rivals. The files
hold weights and statistics of features, no pictures. Nothing in them is executed.
"""


def _row(task: TaskFacts) -> str:
    classes = ", ".join(map(escaped, task.classes[:MOST_CLASSES]))
    if len(task.classes) > MOST_CLASSES:
        classes += f" and {len(task.classes) - MOST_CLASSES:,} more"
    accuracy = f"{plus_minus(task.accuracy, task.held)} of {task.held:,}"
    return (
        f"| {escaped(task.name)} | {classes} | {accuracy} | {task.images:,} pictures | "
        f"{task.bytes:,} |"
    )


def _start(content: Description) -> str:
    named = content.ancestor
    if named is None:
        return "It was trained from random weights.\n"
    said = f"It started from the trained network {escaped(named.name)}"
    if named.trained_on:
        said += f", trained on {escaped(named.trained_on)}"
    if named.terms:
        said += f" (terms: {escaped(named.terms)})"
    return f"{said}.\n"


def _tested(report: TestReport | None) -> str:
    if report is None:
        return ""
    low, high = report.interval
    task = f"the task {escaped(report.task)} given" if report.task else "the task not given"
    rows = []
    for each in report.per_class:
        interval = "{:.1f} to {:.1f}".format(*each.interval)
        rows.append(
            f"| {escaped(each.label)} | {each.images:,} | {each.accuracy:.1f} | {interval} |"
        )
    return f"""
## Tested on other pictures

**{report.accuracy:.1f} %** of {report.images:,} pictures that were not learned, {task}; the 95 %
interval is {low:.1f} to {high:.1f} %.

| class | pictures | accuracy % | 95 % interval |
|---|--:|--:|--:|
{chr(10).join(rows)}

![True classes in rows, answers in columns]({PICTURE})
"""


def confusion_picture(report: TestReport) -> bytes:
    """The confusion matrix as a PNG."""
    with tempfile.TemporaryDirectory() as place:
        report.plot(f"{place}/{PICTURE}")
        return Path(place, PICTURE).read_bytes()


def check_report(content: Description, report: TestReport) -> None:
    """Refuse a report on classes that the model does not know."""
    known = {label for task in content.tasks for label in task.classes}
    tested = [each.label for each in report.per_class]
    others = [label for label in tested if label not in known]
    if others:
        raise RivalsError(
            f"The report is about the class '{others[0]}', which this model does not know; give "
            "one of `model.test`."
        )
