"""Tasks and streams of tasks."""

from rivals.tasks import cifar100 as cifar100
from rivals.tasks import digits as digits
from rivals.tasks import five_datasets as five_datasets
from rivals.tasks import gaussians as gaussians
from rivals.tasks import omniglot_rotation as omniglot_rotation
from rivals.tasks import pmnist as pmnist
from rivals.tasks import tiny_imagenet as tiny_imagenet
from rivals.tasks.batching import Batching, epoch
from rivals.tasks.stream import Benchmark, Lesson, Stream, streams
from rivals.tasks.task import Batch, Examples, Preprocessing, Task

__all__ = [
    "Batch",
    "Batching",
    "Benchmark",
    "Examples",
    "Lesson",
    "Preprocessing",
    "Stream",
    "Task",
    "epoch",
    "streams",
]
