"""results.json: what a run found, and nothing that depends on the clock or the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rivals.experiment import evaluation, matrix
from rivals.experiment.result_file import FORMAT, read_results, write_results
from rivals.learn.method import Method
from rivals.seeds import Seed
from rivals.streams.stream import Stream, StreamItem
from rivals.tickets.cost import cost
from rivals.tickets.overlap import consecutive_overlap, overlap_by_chance

__all__ = ["Results", "read_results"]


class Results:
    """Grows by one task at a time; `content` is what is written."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    @classmethod
    def empty(cls, benchmark: str, method: str, preset: str, seed: int, subset: str) -> Results:
        return cls(
            {
                "format": FORMAT,
                "benchmark": benchmark,
                "method": method,
                "preset": preset,
                "seed": seed,
                "subset": subset,
                "complete": False,
                "tasks": [],
                "matrix": [],
                "inferred": [],
                "summary": {},
            }
        )

    def add(self, method: Method, items: list[StreamItem], stream: Stream, seed: Seed) -> None:
        """Measure every task again, and record the one just learned."""
        item, done = items[-1], len(items)
        row = [evaluation.known(method, each) for each in items]
        small = cost(method.ticket(item.task.name), stream.input_shape)
        entry: dict[str, Any] = {
            "name": item.task.name,
            "classes": list(item.task.classes),
            "accuracy": row[-1],
            "validation_accuracy": evaluation.validation(method, item),
            "ticket": {"weights": small.weights, "bytes": small.bytes, "macs": small.macs},
            "flops": method.spent,
            **method.task_facts(item.task.name),
        }
        winners = method.winners(item.task.name)
        if winners:
            entry["winners"] = [layer.tolist() for layer in winners]  # unit numbers, by layer
        self.content["tasks"].append(entry)
        self.content["matrix"].append(row)
        if evaluation.inference_due(done, len(stream)):
            found = evaluation.inferred(method, items, seed)
            self.content["inferred"].append(
                {
                    "after": done,
                    "accuracy": [each.accuracy for each in found],
                    "task_accuracy": [each.task for each in found],
                    "calibration_error": evaluation.calibration_error(found),
                }
            )
        self.content["complete"] = done == len(stream)
        self.content["summary"] = self.summary(method)

    def summary(self, method: Method) -> dict[str, Any]:
        """The numbers a table shows. Accuracy has its label: task known or task inferred."""
        rows, tasks = self.content["matrix"], self.content["tasks"]
        last = self.content["inferred"][-1] if self.content["inferred"] else None
        kept = [(method.retained(task["name"]), task["ticket"]["weights"]) for task in tasks]
        checked = [task["validation_accuracy"] for task in tasks]
        mean_weights = sum(whole if few is None else few for few, whole in kept) / len(tasks)
        winners = [method.winners(task["name"]) for task in tasks]
        competed = bool(winners[0]) and len(tasks) > 1
        return {
            "accuracy": {
                "task_known": matrix.accuracy(rows),
                "task_inferred": _mean(last["accuracy"]) if last else None,
                "task_named_right": _mean(last["task_accuracy"]) if last else None,
                "calibration_error": last.get("calibration_error") if last else None,
                "inferred_after": last["after"] if last else None,
                "when_learned": matrix.learning_accuracy(rows),
                "validation": None if None in checked else _mean(checked),
            },
            "bti": matrix.bti(rows),
            "bwt": matrix.bwt(rows),
            "forgetting": matrix.forgetting(rows),
            "overlap": consecutive_overlap(winners) if competed else None,
            "overlap_by_chance": (
                overlap_by_chance(winners, [task["units"] for task in tasks]) if competed else None
            ),
            "retained": {
                "nominal": 100 * method.nominal_share,
                "effective": 100 * mean_weights / method.full_weights(),
                "weights": mean_weights,
            },
            "flops": sum(task["flops"] for task in tasks),
            "bytes": method.footprint(),
        }

    def write(self, path: Path) -> None:
        write_results(path, self.content)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
