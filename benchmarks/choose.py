"""Choose a setting on validation data: the test images of every task are put out of reach.

    python benchmarks/choose.py cifar100 compare lr 0.01,0.02,0.05 er,gpm,icarl --tasks 4

Prints, for each method and value, the mean accuracy over all tasks after the last one, on their
validation images. Seed 9, which no reported result uses.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.streams.on_validation import OnValidation

SEED = 9


def measured(words: argparse.Namespace, method: str, value: str) -> dict[str, Any]:
    """The summary of one run on validation data; finished runs are read, not made again."""
    told = (words.benchmark, words.preset, method, words.setting, value, str(words.tasks))
    out = words.out / "-".join((*told, *words.set))
    results = out / "results.json"  # written after every task
    if not (results.exists() and json.loads(results.read_text())["complete"]):
        given = {words.setting: value, "tasks": words.tasks, **parse_overrides(words.set)}
        run = prepare(
            resolve(words.benchmark, method, words.preset, SEED, given), out, resume=out.exists()
        )
        run.stream = OnValidation(run.stream)  # type: ignore[assignment]
        run.go()
    summary: dict[str, Any] = json.loads(results.read_text())["summary"]
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("benchmark", "preset", "setting", "values", "methods"):
        parser.add_argument(name)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path("runs/choose"))
    words = parser.parse_args()
    for method in words.methods.split(","):
        for value in words.values.split(","):
            try:
                summary = measured(words, method, value)
            except RivalsError as error:
                print(f"{method:14} {words.setting}={value:8} {error}", flush=True)
                continue
            accuracy, bti = summary["accuracy"]["task_known"], summary["bti"]
            print(
                f"{method:14} {words.setting}={value:8} {accuracy:5.1f}  BTI {bti:4.1f}", flush=True
            )


if __name__ == "__main__":
    main()
