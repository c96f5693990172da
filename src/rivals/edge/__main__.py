"""`python -m rivals.edge ARTEFACT IMAGE…`: what is on each picture, and how sure."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from rivals.edge.artefact import load
from rivals.errors import RivalsError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rivals.edge", description=__doc__)
    parser.add_argument("artefact", help="What `rivals export` has written.")
    parser.add_argument("image", nargs="+", help="A picture file.")
    parser.add_argument("--threads", type=int, default=1, help="Threads of the runtime.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    words = parser.parse_args(arguments)
    try:
        artefact = load(words.artefact, words.threads)
        answers = [(image, artefact.classify(image)) for image in words.image]
    except RivalsError as error:
        print(f"rivals.edge: {error}", file=sys.stderr)
        return 2
    if words.json:
        print(json.dumps([{"image": image, **asdict(answer)} for image, answer in answers]))
        return 0
    several = len(artefact.card.tasks) > 1
    for image, answer in answers:
        task = f"  task {answer.task}" if several else ""
        print(f"{image}: {answer.label}  {100 * answer.confidence:.1f} %{task}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
