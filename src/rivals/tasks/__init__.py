"""Tasks and streams of tasks."""

from rivals.tasks import digits as digits
from rivals.tasks.stream import Benchmark, Lesson, Stream, streams
from rivals.tasks.task import Batch, Examples, Preprocessing, Task, batch_count, epoch

__all__ = [
    "Batch", "Benchmark", "Examples", "Lesson", "Preprocessing", "Stream", "Task", "batch_count", "epoch",
    "streams",
]
