"""Tasks and streams of tasks."""

from rivals.tasks import digits as digits
from rivals.tasks.stream import Benchmark, Lesson, Stream, streams
from rivals.tasks.task import Batch, Examples, Preprocessing, Task, batches

__all__ = [
    "Batch", "Benchmark", "Examples", "Lesson", "Preprocessing", "Stream", "Task", "batches",
    "streams",
]
