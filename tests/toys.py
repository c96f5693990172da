"""Small real things that tests share: tasks cut from the bundled digits, methods, learning."""

import hashlib
from pathlib import Path

import torch

from rivals.learn.callbacks import OnStep
from rivals.learn.method import methods
from rivals.learn.trainer import Trainer
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.streams.stream import streams
from rivals.streams.task import Examples, Task

# The settings of a run of about twenty steps, as --set takes them.
CHANGES = ["tasks=2", "epochs=2", "batch_size=160", "architecture=mlp", "widths=16-16", "units=2"]
TINY = {"architecture": "mlp", "widths": (16, 16), "units": 4}
# Methods on frozen features, and what makes them quick.
FROZEN = {
    "ncm": {"ancestor": "tiny"},
    "slda": {"ancestor": "tiny"},
    "ranpac": {"ancestor": "tiny", "projected": 200},
    "fecam": {"ancestor": "tiny"},
}


def lessons(count=3, benchmark="digits", seed=0, **settings):
    found = streams[benchmark]
    stream = found.build(found.settings(**settings), Seed(seed))
    return [stream[index] for index in range(count)]


def shortened(task, images, name=None):
    """The same task with only a few training images."""
    train = Examples(task.train.images[:images], task.train.labels[:images])
    return Task(name or task.name, task.classes, train, task.validation, task.preprocessing)


def make(method="twta", network=None, seed=0, shape=(1, 8, 8), **settings):
    cls = methods[method]
    plan = NetworkPlan(NetworkSettings(**(network or TINY)), shape)
    settings = {"epochs": 2, **FROZEN.get(method, {}), **settings}
    return cls(plan, cls.settings_class.from_paths(settings), Seed(seed))


def steps_of(method, task, watch=lambda step: None):
    """The steps of a task that was started, from wherever the method stands."""
    trainer = Trainer(method, [OnStep(watch)])
    trainer.task = task
    trainer.run_epochs(task)


def teach(method, task):
    Trainer(method).fit(task)
    return method


def accuracy(method, lesson, task="own"):
    prediction = method.predict(lesson.test.images, lesson.task.name if task == "own" else task)
    return 100 * float((prediction.label == lesson.test.labels).float().mean())


def ticket_bits(method, task):
    """Every bit of a ticket, for comparison."""
    return {k: v.clone() for k, v in method.ticket(task).state_dict().items()}


def same_bits(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def contents(folder: Path) -> dict[str, str]:
    """Every path below `folder`, with the checksum of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }
