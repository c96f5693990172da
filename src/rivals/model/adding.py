"""Teach one picture: a task in closed form takes it into its statistics, in the time of an answer.

    statistics of the task  +  the features of one picture of a class  ─►  the head of all of them

The same as with `learn --again` (model/learning.py), for a picture of which somebody says what it
shows. A class that the task does not know begins with it. Nothing is held out, so the accuracy of
the task stays what it was. Means are stored with 16 bits: from about a thousand pictures of a class
on, one more moves its mean no more.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.io.reading import printable
from rivals.model import limits, manifest
from rivals.model.folder import ModelFolder
from rivals.model.folder_writing import write_lock
from rivals.model.manifest import TaskFacts
from rivals.naming.discriminant import ClassStatistics
from rivals.naming.familiarity import FeatureStatistics
from rivals.naming.shared_features import SharedFeatures
from rivals.naming.task_record import TaskRecord
from rivals.naming.task_statistics import beside_head
from rivals.streams.picture_source import named
from rivals.tickets.cost import cost


def add_picture(
    model: ModelFolder, pixels: Tensor, label: str, task: str | None = None
) -> ModelFolder:
    """The model with pixels (channels, height, width) of its own size added to a class of a task.

    The task need not be named where one knows the class, or where there is but one. After an error
    the network of `model` may be half changed, and its folder is as it was.
    """
    began, label = time.monotonic(), named(label, "class")
    with write_lock(model.path) as lock:
        if manifest.read(model.path) != model.description:  # somebody has written meanwhile
            model = ModelFolder.open(model.path, model.device)
        model.lock = lock
        known = find_task(model, label, task)
        if not model.method.in_closed_form(known.name):
            raise RivalsError(
                f"The task '{known.name}' is not kept as statistics of features, to which one "
                "picture could be added; collect pictures of it and use `rivals learn --again`."
            )
        facts = learn_one(model, known, pixels, label)
        facts = replace(facts, seconds=round(known.seconds + time.monotonic() - began, 2))
        tasks = [facts if each == known else each for each in model.tasks]
        return model.commit(tasks, "refine", known.name)


def find_task(model: ModelFolder, label: str, task: str | None) -> TaskFacts:
    """The task that a picture of this class is for."""
    if task is not None:
        return model.task(task)
    having = [each for each in model.tasks if label in each.classes]
    found = having or model.tasks
    if len(found) != 1:
        said = "know" if having else "could learn"
        names = printable(", ".join(each.name for each in found[:5]))
        raise RivalsError(
            f"{len(found)} tasks {said} the class '{label}' ({names}); say which one is meant."
        )
    return found[0]


@torch.no_grad()
def learn_one(model: ModelFolder, known: TaskFacts, pixels: Tensor, label: str) -> TaskFacts:
    """Join one picture with the statistics of a task."""
    method, record = model.method, model.method.known[known.name]
    kept, classes = record.kept, known.classes
    assert kept is not None
    old = ClassStatistics.from_tensors(kept)
    if label not in classes:
        if len(classes) == limits.CLASSES:
            raise RivalsError(f"The task '{known.name}' has {len(classes)} classes, the limit.")
        classes = (*classes, label)
        none = torch.zeros_like(old.means[:1])
        old = replace(old, means=torch.cat([old.means, none]),
                      counts=torch.cat([old.counts, torch.zeros_like(old.counts[:1])]))  # fmt: skip
    features, place = features_of(model, record, pixels), classes.index(label)
    joined = old.join(one_picture(old, features, place))
    named = SharedFeatures(method.network.space).with_picture(kept, features, place)
    both = kept | beside_head(named) | joined.tensors()
    levels, within = model.familiarity[known.name].levels, method.network.within
    method.drop(known.name)
    method.learn_in_closed_form(known.name, TaskRecord(classes, record.preprocessing, both))
    model.familiarity[known.name] = FeatureStatistics.of_statistics(
        both, within, float(kept["prior"]), levels
    )
    small = cost(method.ticket(known.name), model.description.input_shape)
    return replace(
        known, classes=classes, images=known.images + 1, refined=known.refined + 1,
        weights=small.weights, macs=small.macs, file="", sha256="", bytes=1,
    )  # fmt: skip


def features_of(model: ModelFolder, record: TaskRecord, pixels: Tensor) -> Tensor:
    """(d,), as the heads of the model read them."""
    network = model.method.network
    network.learning(False)
    prepared = record.preprocessing(pixels.unsqueeze(0).to(model.method.device))
    return network.shared_features(prepared)[0].cpu().double()


def one_picture(like: ClassStatistics, features: Tensor, label: int) -> ClassStatistics:
    """The statistics of one picture: no other class has any, and nothing is around its mean."""
    means, counts = torch.zeros_like(like.means), torch.zeros_like(like.counts)
    means[label], counts[label] = features, 1.0
    scatter = None if like.scatter is None else torch.zeros_like(like.scatter)
    return ClassStatistics(means, counts, scatter)
