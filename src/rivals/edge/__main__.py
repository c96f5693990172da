"""`python -m rivals.edge ARTEFACT IMAGE…`: print the class of each picture and its confidence."""

from __future__ import annotations

import argparse
import json
import sys

from rivals.edge.artefact import load
from rivals.errors import RivalsError, command_line
from rivals.io.reading import printable

LINE = 10_000  # characters of a path or a sentence, at most


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rivals.edge", description=__doc__)
    parser.add_argument("artefact", help="A file or folder that `rivals export` wrote.")
    parser.add_argument("image", nargs="+", help="A picture, or a WAV file.")
    parser.add_argument("--threads", type=int, default=1, help="Number of threads of the runtime.")
    parser.add_argument(
        "--run-native",
        action="store_true",
        help="Allow a folder of C, which is compiled and run here, or a .pte program.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parser.parse_args(arguments)
    with command_line():
        try:
            artefact = load(options.artefact, options.threads, options.run_native)
            answers = [(image, artefact.classify(image)) for image in options.image]
        except RivalsError as error:
            print(f"rivals.edge: {printable(str(error), LINE)}", file=sys.stderr)
            return 2
    if options.json:
        rows = [
            {"image": image, "label": a.label, "confidence": a.confidence, "task": a.task}
            for image, a in answers
        ]
        print(json.dumps(rows))
        return 0
    several = len(artefact.card.tasks) > 1
    for image, answer in answers:
        task = f"  task {printable(answer.task)}" if several else ""
        label = printable(answer.label)
        print(f"{printable(image, LINE)}: {label}  {100 * answer.confidence:.1f} %{task}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
