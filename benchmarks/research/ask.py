"""Answer the questions of questions.yaml on validation data; docs/research.md is made of them.

    python benchmarks/research/ask.py winners --out runs/research --workers 2
    python benchmarks/research/ask.py wide --only iCaRL     # the variants so named

Every variant of a question learns the same streams, seed by seed, and the test images of every task
are put out of reach: what is measured is accuracy on validation images, after the last task. A run
is named by what was asked, so one that is finished is read, not made again, whichever question asks
for it. Prints a table of means and deviations; the differences are those to the first variant,
paired by seed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch
import yaml

from rivals.experiment.run_settings import resolve
from rivals.experiment.start import prepare
from rivals.streams.on_validation import OnValidation

QUESTIONS = Path(__file__).with_name("questions.yaml")


def run(question: dict[str, Any], variant: dict[str, Any], seed: int, out: Path) -> dict[str, Any]:
    """The summary of one run below `out`; a folder with results is not run again."""
    torch.set_num_threads(1)
    given = {**question.get("set", {}), **variant}
    method = given.pop("method", "twta")
    benchmark, preset = question["benchmark"], question["preset"]
    asked = json.dumps([benchmark, preset, method, given], sort_keys=True)
    digest = sha256(asked.encode()).hexdigest()[:8]
    out = out / f"{benchmark}-{method.rpartition(':')[2]}-{digest}-{seed}"
    results = out / "results.json"  # written after every task
    if not (results.exists() and json.loads(results.read_text())["complete"]):
        settings = resolve(benchmark, method, preset, seed, given)
        work = prepare(settings, out, resume=out.exists())
        work.stream = OnValidation(work.stream)  # type: ignore[assignment]
        work.go()
    summary: dict[str, Any] = json.loads(results.read_text())["summary"]
    seconds = json.loads((out / "measured.json").read_text())["total_train_seconds"]
    return {
        "accuracy": summary["accuracy"]["task_known"],
        "kilobytes": sum(summary["bytes"].values()) / 1000,
        "overlap": summary.get("overlap") or 0.0,
        "seconds": seconds,
    }


def spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """A row for each variant, Markdown."""
    first = [each["accuracy"] for each in next(iter(found.values()))]
    lines = [
        "| | accuracy % | difference | kB to go on | same winner % | seconds |",
        "|---|" + "--:|" * 5,
    ]
    for name, runs in found.items():
        accuracy = [each["accuracy"] for each in runs]
        apart = [a - b for a, b in zip(accuracy, first, strict=False)]
        means = [
            statistics.mean(each[k] for each in runs) for k in ("kilobytes", "overlap", "seconds")
        ]
        others = f"{means[0]:,.0f} | {means[1]:.0f} | {means[2]:.0f}"
        lines.append(f"| {name} | {spread(accuracy)} | {spread(apart)} | {others} |")
    return "\n".join(lines)


def end_with_parent() -> None:
    """For a worker: do not go on when the asking process was killed; every task done is saved."""
    parent = parent_process()
    assert parent is not None, "only a worker ends with its parent"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = yaml.safe_load(QUESTIONS.read_text())
    parser.add_argument("questions", nargs="+", choices=list(known))
    parser.add_argument("--out", type=Path, default=Path("runs/research"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="the variants whose names have this in them")
    words = parser.parse_args()
    for name in words.questions:
        question = known[name]
        variants = {k: v or {} for k, v in question["variants"].items() if words.only in k}
        if not variants:
            parser.error(f"'{name}' has no variant with '{words.only}' in its name")
        with ProcessPoolExecutor(words.workers, get_context("spawn"), end_with_parent) as pool:
            waiting = {
                (variant, seed): pool.submit(run, question, settings, seed, words.out)
                for seed in question["seeds"]
                for variant, settings in variants.items()
            }
            found = {
                variant: [waiting[variant, seed].result() for seed in question["seeds"]]
                for variant in variants
            }
        print(f"## {name}: {question['asks']}\n\n{table(found)}\n", flush=True)


if __name__ == "__main__":
    main()
