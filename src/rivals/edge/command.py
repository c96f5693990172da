"""`rivals-edge`, or `python -m rivals.edge`: learn and answer without torch.

    rivals-edge learn FOLDER --model M      a folder with a subfolder for each class
    rivals-edge predict PICTURE… --model M  the class of each; M may be an exported file, too
    rivals-edge test FOLDER --model M       accuracy on pictures that were not learned
    rivals-edge drop TASK --model M         forget a task
    rivals-edge info M                      what is known

`python -m rivals.edge ARTEFACT PICTURE…` is short for `predict` with an exported file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivals.errors import RivalsError, command_line
from rivals.io.reading import printable

if TYPE_CHECKING:  # whoever runs an exported file needs nothing of a model
    from rivals.answer import Answer

LINE = 10_000  # characters of a path or a sentence, at most
MOST_FILES = 5  # left out, that are named


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(words if is_verb(words) else short_form(words))
    verb: Callable[[argparse.Namespace], int] = options.verb
    with command_line():
        try:
            return verb(options)
        except RivalsError as error:
            return tell(str(error))
        except KeyboardInterrupt:
            tell("Stopped; the model is as it was.")
            return 130
        except MemoryError:
            return tell("The memory is used up; close other programs, or use fewer pictures.")
        except BrokenPipeError:
            return 0


def run() -> None:
    """What the script `rivals-edge` calls."""
    sys.exit(main())


VERBS = ("learn", "predict", "test", "drop", "info")


def is_verb(words: list[str]) -> bool:
    return not words or words[0] in VERBS or words[0] in ("-h", "--help", "--version")


def short_form(words: list[str]) -> list[str]:
    """`[OPTION…] ARTEFACT PICTURE…` as the words of `predict`."""
    short = argparse.ArgumentParser(prog="rivals-edge", usage="rivals-edge VERB …; see --help")
    short.add_argument("artefact")
    options, rest = short.parse_known_args(words)
    return ["predict", "--model", options.artefact, *rest]


def parser() -> argparse.ArgumentParser:
    from rivals import __version__

    whole = argparse.ArgumentParser(
        prog="rivals-edge", description="Learn and answer on a device, without torch."
    )
    whole.add_argument("--version", action="version", version=f"rivals-edge {__version__}")
    verbs = whole.add_subparsers(required=True, metavar="VERB")

    def add(name: str, verb: Callable[[argparse.Namespace], int], what: str) -> Any:
        own = verbs.add_parser(name, help=what, description=what)
        own.set_defaults(verb=verb)
        own.add_argument("--json", action="store_true", help="Print JSON.")
        return own

    model = {"required": True, "type": Path, "help": "Folder of the model."}
    own = add("learn", learn, "Learn the pictures in FOLDER as a new task.")
    own.add_argument("folder", type=Path, help="It has a subfolder for each class.")
    own.add_argument("--model", **model)
    own.add_argument("--name", help="Name of the task; default: that of the folder.")
    own.add_argument("--again", action="store_true", help="Add pictures to a known task.")
    own.add_argument("--anew", action="store_true", help="Replace a known task.")
    own.add_argument("--strict", action="store_true", help="Refuse files that cannot be used.")
    own.add_argument("--ancestor", help="New model only: small (default) or tiny.")
    own.add_argument("--size", type=int, help="New model only: pixels a side.")

    own = add("predict", predict, "Print the class of each picture and the confidence.")
    own.add_argument("picture", nargs="+", help="A picture, or a WAV file.")
    own.add_argument("--model", **{**model, "help": "Folder of a model, or an exported file."})
    own.add_argument("--task", help="The task; default: the model finds it.")
    own.add_argument(
        "--reject", type=float, metavar="P",
        help="Answer 'none of these' for unfamiliar pictures; P is the share of known ones that "
        "may be rejected by mistake.",
    )  # fmt: skip
    own.add_argument("--threads", type=int, default=1, help="Threads of an export's runtime.")
    own.add_argument(
        "--run-native", action="store_true",
        help="Allow a folder of C, which is compiled and run here, or a .pte program.",
    )  # fmt: skip

    own = add("test", test, "Measure accuracy on a folder of pictures that were not learned.")
    own.add_argument("folder", type=Path, help="It has a subfolder for each class.")
    own.add_argument("--model", **model)
    own.add_argument("--task", help="The task; default: the model finds it.")

    own = add("drop", drop, "Delete TASK from a model. The other tasks do not change.")
    own.add_argument("task", help="Name of the task.")
    own.add_argument("--model", **model)

    own = add("info", info, "Show the tasks of a model.")
    own.add_argument("model", type=Path, help="Folder of the model.")
    return whole


def learn(options: argparse.Namespace) -> int:
    from rivals.edge.lesson import LEARNERS
    from rivals.edge.taught import EdgeModel

    lesson = EdgeModel(options.model).learn(
        options.folder, options.name, again=options.again, anew=options.anew,
        strict=options.strict, ancestor=options.ancestor, size=options.size,
    )  # fmt: skip
    if options.json:
        print(json.dumps(lesson.to_dict()))
        return 0
    facts, skipped = lesson.facts, lesson.left_out
    if skipped:
        print(f"Skipped {len(skipped):,} file{'s' * (len(skipped) > 1)}:")
    for each in skipped[:MOST_FILES]:
        why = each.why if each.path in each.why else f"{each.path}: {each.why}"
        print(f"  {printable(why, LINE)}")
    if len(skipped) > MOST_FILES:
        print(f"  and {len(skipped) - MOST_FILES:,} more (--json lists all)")
    if not lesson.kept:
        print("The model was not changed: the new pictures made it worse.")
        return 0
    print(
        f"Learned '{printable(facts.name)}': {len(facts.classes)} classes, {facts.images:,} "
        f"pictures, by {LEARNERS[lesson.learner]}."
    )
    print(f"Accuracy {facts.accuracy:.1f} % in cross-validation of {facts.held:,} pictures.")
    if lesson.repeated:
        print(f"{lesson.repeated:,} pictures occurred twice and were used once.")
    print(
        f"It took {facts.seconds:.1f} s, {facts.bytes:,} bytes, and at most "
        f"{lesson.peak_memory / 1e6:.0f} MB of memory."
    )
    tell_unsigned(lesson.unsigned, options.model)
    return 0


def predict(options: argparse.Namespace) -> int:
    several, ask = answering(options)
    rows, failed = [], False
    for picture in options.picture:
        try:
            answer = ask(picture)
        except RivalsError as error:
            tell(str(error))
            failed = True
            continue
        if options.json:
            rejected = {} if options.reject is None else {"rejected": answer.rejected}
            rows.append({
                "image": picture, "label": answer.label, "confidence": answer.confidence,
                "task": answer.task, **rejected,
            })  # fmt: skip
            continue
        task = f"  task {printable(answer.task)}" if several else ""
        said = f"{printable(answer.label)}  {100 * answer.confidence:.1f} %{task}"
        if answer.rejected:
            said = f"none of these (nearest: {printable(answer.label)}{task})"
        print(f"{printable(picture, LINE)}: {said}")
    if options.json:
        print(json.dumps(rows))
    return 2 if failed else 0


def answering(options: argparse.Namespace) -> tuple[bool, Callable[[str], Answer]]:
    """Whether there are several tasks, and what answers: a model, or an exported file."""
    model = options.model
    if model.is_dir() and (model / "model.json").exists():
        from rivals.edge.taught import EdgeModel

        taught = EdgeModel(model)
        taught.check(options.task, options.reject)
        return len(taught.tasks) > 1, lambda picture: taught.predict(
            picture, options.task, options.reject
        )
    from rivals.edge.artefact import load

    if options.task is not None:
        raise RivalsError(f"--task needs the folder of a model, but {model} is none.")
    artefact = load(model, options.threads, options.run_native)
    artefact.check(options.reject)
    return len(artefact.card.tasks) > 1, lambda picture: artefact.classify(picture, options.reject)


def test(options: argparse.Namespace) -> int:
    from rivals.edge.taught import EdgeModel

    found = EdgeModel(options.model).test(options.folder, options.task)
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"Accuracy {found['accuracy']:.1f} % of {found['images']:,} pictures.")
    for name, accuracy in found["classes"].items():
        print(f"  {printable(name)}  {accuracy:.1f} %")
    return 0


def drop(options: argparse.Namespace) -> int:
    from rivals.edge.taught import EdgeModel

    gone = EdgeModel(options.model).drop(options.task)
    if options.json:
        print(json.dumps({"event": "dropped", **vars(gone)}))
        return 0
    print(f"Dropped '{printable(gone.task)}'; {gone.freed:,} bytes are free.")
    tell_unsigned(gone.unsigned, options.model)
    return 0


def info(options: argparse.Namespace) -> int:
    from rivals.edge.taught import EdgeModel

    content = EdgeModel(options.model).description()
    if options.json:
        tasks = [each.to_dict() for each in content.tasks]
        began = content.ancestor.name if content.ancestor else None
        facts = {"ancestor": began, "input_shape": content.input_shape, "tasks": tasks}
        print(json.dumps(facts))
        return 0
    for line in lines_of(content):
        print(line)
    return 0


def lines_of(content: Any) -> Iterator[str]:
    side, began = content.input_shape[1], content.ancestor
    yield (
        f"{len(content.tasks):,} task{'s' * (len(content.tasks) != 1)}, "
        f"{content.total_bytes():,} bytes, pictures of {side} × {side}, "
        f"from {f'the ancestor {printable(began.name)}' if began else 'no ancestor'}."
    )
    for each in content.tasks:
        yield (
            f"  {printable(each.name)}  {each.accuracy:.1f} %  {each.images:,} pictures  "
            f"{each.bytes:,} bytes  {printable(', '.join(each.classes))}"
        )


def tell(sentence: str) -> int:
    """One line on stderr; the status of a refusal."""
    print(f"rivals-edge: {printable(sentence, LINE)}", file=sys.stderr)
    return 2


def tell_unsigned(unsigned: bool, model: Path) -> None:
    if unsigned:
        print(f"The signature was removed: {model} is no longer what was signed.")
