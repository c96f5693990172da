"""Folders and files that somebody changed, by chance or on purpose, given to every verb.

    python tests/fuzzing.py PLAN.json     what to change, how often; prints a report as JSON

A change is one of: bytes turned over, a file cut, lengthened, emptied or removed; a value of a
JSON or YAML file replaced by something nasty, under the old checksum or under the right one, as an
attacker would; bytes of weights or of an exported graph changed under a right checksum; a link, a
pipe, a device, a huge file.

One process imports everything and forks a child for each kind of folder. The child changes a copy,
uses it as a user would, and tells what went wrong. If it hangs or dies, the next child goes on.

Counted are: traceback (or a crash, or a message that is not a sentence), hang (over 10 s of
computing, or 30 s asleep; the clock alone says nothing on a busy machine), memory (over 1 GB),
silent (another answer, or a link followed, without an error), unprintable (control codes that reach
the terminal).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 10.0  # of computing for a change
ASLEEP = 30.0  # waiting for a pipe or a lock, not for its turn on a busy machine
BEGINNING = 60.0  # of computing before the first change
MEMORY = 2**30
MOST_MEMORY = 5 * 2**29  # so that a mistake does not end the machine
LONGEST = 20_000  # characters of a sentence
MOST_HANGS = 10  # of a kind; then the rest is left out
WHAT = ("traceback", "hang", "memory", "silent", "unprintable")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
UNREAD = re.compile(  # for people, or for programs that are not ours
    r"README\.md|main\.c|board\.c|Makefile|measured\.json|exports\.json|stderr|process|alive|\..*"
)

# Nasty values ------------------------------------------------------------------------------------

TOKENS = {  # JSON that no Python value stands for
    "@nan@": "NaN", "@infinity@": "Infinity", "@overflow@": "1e999", "@digits@": "1" + "0" * 5000,
    "@deep@": "[" * 5000 + "]" * 5000, "@deeper@": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "@many@": "[" + "[]," * 300_000 + "[]]",
}  # fmt: skip
ESCAPES = "\x1b[31mred\x1b[0m\nrivals: all is well\r\x07\u202e"
NASTY: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 10**30, -(10**30), 1e308, 0.5, "", "a", ESCAPES,
    "../../x", "/etc/passwd", "os:system", "antigravity:x", "x" * 100_000, [], {}, [0] * 100_000,
    [8192] * 8, ["a"] * 2000, {"a": {"b": {}}}, "a\x00b", *TOKENS,
)  # fmt: skip
YAML = (
    b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (n, n, b", ".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 108)
    ),
    b"!!python/object/apply:os.system ['touch fuzzed']\n",
    b"groups: " + b"[" * 20_000 + b"]" * 20_000,
    b"groups: " + b"{a: " * 5000 + b"1" + b"}" * 5000,
    b"benchmarks: [digits]\nseeds: [" + b"0, " * 50_000 + b"0]\n",
    b"? " * 20_000,
    b"\xff\xfe\x00",
    b"- " * 20_000 + b"a",
)  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value of lists and mappings, but for long lists of numbers."""
    found = [here] if here else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = list(enumerate(value))[:20]
    for key, inner in items:
        found += places(inner, (*here, key))
    return found


def with_change(value: Any, chance: random.Random) -> tuple[Any, str]:
    """A copy with one value replaced, taken away, doubled or exchanged with its neighbour."""
    value = copy.deepcopy(value)
    known = places(value)
    if not known:
        return chance.choice(NASTY), "the whole"
    path = chance.choice(known)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    key, old = path[-1], inner[path[-1]]
    where = "/".join(map(str, path))
    how = chance.choice(("nasty", "nasty", "nasty", "near", "gone", "swap"))
    if how == "gone":
        del inner[key]
    elif how == "swap" and isinstance(inner, list) and len(inner) > 1:
        other = chance.choice([n for n in range(len(inner)) if n != key])
        inner[key], inner[other] = inner[other], inner[key]
    elif how == "near" and isinstance(old, int | float) and not isinstance(old, bool):
        inner[key] = chance.choice((old + 1, old * 1000, -old, old + 0.5))
    elif how == "near" and isinstance(old, str):
        inner[key] = chance.choice((old + "x", old[:-1], old.upper(), ESCAPES + old))
    else:
        inner[key] = copy.deepcopy(chance.choice(NASTY))
    return value, f"{how} {where}"


def as_json(value: Any) -> bytes:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    for token, meaning in TOKENS.items():
        text = text.replace(f'"{token}"', meaning)
    return (text + "\n").encode(errors="surrogatepass")


def as_yaml(value: Any) -> bytes:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    for token, meaning in TOKENS.items():
        text = text.replace(token, meaning if len(meaning) < 20_000 else meaning[:20_000])
    return text.encode(errors="surrogatepass")


# Structured files, and their checksums -----------------------------------------------------------


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def structured(file: Path) -> tuple[Any, Callable[[Any], None]]:
    """The content of a file of values, and a function that writes it."""
    if file.suffix == ".onnx":
        import onnx

        model = onnx.load_model_from_string(file.read_bytes())
        entry = next(each for each in model.metadata_props if each.key == "rivals")

        def write_card(value: Any) -> None:
            entry.value = as_json(value).decode(errors="replace")
            file.write_bytes(model.SerializeToString())

        return json.loads(entry.value), write_card
    if file.suffix == ".yaml":
        import yaml

        return yaml.safe_load(file.read_text()), lambda value: put(file, as_yaml(value))
    return json.loads(file.read_text()), lambda value: put(file, as_json(value))


def put(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def is_structured(file: Path) -> bool:
    return file.suffix in (".json", ".yaml", ".onnx")


def seal(root: Path, file: Path) -> None:
    """Write the right checksums after `file` was changed. What cannot be read has none."""
    with contextlib.suppress(Exception):
        if file.suffix == ".safetensors":
            seal_weights(root, file)
        elif file.suffix in (".onnx", ".ort"):
            fill(file)
        elif file.name == "ticket.json":
            fill(file, (file.parent / "weights.safetensors").read_bytes())
        elif file.name == "card.json":
            fill(file, *((file.parent / name).read_bytes() for name in ("ticket.c", "ticket.h")))
        elif file.name == "ancestor.json":
            value, write = structured(file)
            rest = {key: each for key, each in value.items() if key != "card_sha256"}
            right = digest(json.dumps(rest, default=str).encode())
            write({key: right if key == "card_sha256" else value[key] for key in value})
        elif file.suffix in (".json", ".yaml"):
            value, write = structured(file)
            if isinstance(value, dict) and "sha256" in value:
                rest = {key: each for key, each in value.items() if key != "sha256"}
                right = digest(json.dumps(rest, default=str).encode())
                write({key: right if key == "sha256" else value[key] for key in value})


def fill(file: Path, *others: bytes) -> None:
    """The checksum of a file that covers itself and others."""
    from rivals.io import checksum

    blank = checksum.FIELD.sub(b'"sha256": "' + checksum.BLANK.encode() + b'"', file.read_bytes())
    file.write_bytes(checksum.with_checksum(blank, *others))


def seal_weights(root: Path, file: Path) -> None:
    """A file of weights is named in the file that describes it, with its checksum and length."""
    data = file.read_bytes()
    for name in ("model.json", "ticket.json", "checkpoint/manifest.json", "ancestor.json"):
        described = root / name
        if name == "ticket.json":
            described = file.parent / name
        if not described.is_file():
            continue
        value, write = structured(described)
        if name == "ancestor.json":
            write({**value, "sha256": digest(data)})
            seal(root, described)
            return
        if name == "ticket.json":
            value["bytes"] = len(data)
            if value.get("format") == 1:
                value["sha256"] = digest(data)
            write(value)
            if value.get("format") != 1:
                seal(root, described)
            return
        new = file.with_name(f"{digest(data)[:16]}.safetensors")
        entries = [*value.get("tasks", []), value.get("moved"), value.get("ancestor")]
        entries += value.get("parts", {}).values()
        for entry in entries:
            if isinstance(entry, dict) and entry.get("file") == file.name:
                entry |= {"file": new.name, "sha256": digest(data)}
                if "bytes" in entry:
                    entry["bytes"] = len(data)
                file.rename(new)
                write(value)
                seal(root, described)
                return


# Changes -----------------------------------------------------------------------------------------


@dataclass
class Change:
    """What was done to a copy."""

    label: str
    file: str = ""
    sealed: bool = False  # checksums are right: another answer is no surprise
    link: bool = False  # to a copy outside: it must not be followed


HOW = (
    "flip", "value", "sealed value", "sealed value", "special", "truncate", "sealed value",
    "sealed value", "sealed weights", "raw",
)  # fmt: skip


def change(root: Path, outside: Path, chance: random.Random, how: str) -> Change:
    """Change the folder or the file `root` in place."""
    files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
    described = [file for file in files if is_structured(file)]
    weights = [file for file in files if file.suffix in (".safetensors", ".onnx", ".ort")]
    if how == "sealed weights" and not weights:
        how = "flip"
    if how in ("value", "sealed value") and not described:
        how = chance.choice(("flip", "truncate", "raw"))
    if how in ("value", "sealed value"):
        file = chance.choice(described)
        value, write = structured(file)
        changed, label = with_change(value, chance)
        write(changed)
        if how == "sealed value":
            seal(root, file)
        return Change(f"{how}: {label}", _name(root, file), how == "sealed value")
    if how == "special":
        return special(root, outside, chance, files)
    file = chance.choice(weights if how == "sealed weights" else files)
    data = bytearray(file.read_bytes())
    if how in ("flip", "sealed weights") and data:
        for _ in range(chance.choice((1, 1, 2, 8))):
            most = chance.choice((min(64, len(data)), min(2048, len(data)), len(data)))
            data[chance.randrange(most)] ^= 1 << chance.randrange(8)
    elif how == "truncate":
        del data[chance.choice((0, 1, 7, len(data) // 2, max(0, len(data) - 1))) :]
    elif chance.random() < 0.5 and file.suffix in (".yaml", ".yml"):
        data = bytearray(chance.choice(YAML))
    else:
        end = chance.choice((b"\x00", b"more", data, b'{"a": 1}', b"\xff" * 100))
        data = data + end if chance.random() < 0.7 else bytearray(end) + data
    file.write_bytes(data)
    if how == "sealed weights":
        seal(root, file)
    return Change(how, _name(root, file), how == "sealed weights")


def special(root: Path, outside: Path, chance: random.Random, files: list[Path]) -> Change:
    """Things that are not the file that should be there."""
    read = [file for file in files if not UNREAD.fullmatch(file.name)]
    file = chance.choice(read)
    folders = sorted({file.parent for file in read} - {root.parent, root})
    kinds = ["link", "loop", "device", "secret", "pipe", "folder", "missing", "empty", "huge"]
    kinds += ["linked folder", "linked folder", "strange name"] if folders else []
    kind = chance.choice(kinds)
    outside.mkdir(parents=True, exist_ok=True)
    name = _name(root, file)
    if kind == "linked folder":
        folder = chance.choice(folders)
        shutil.copytree(folder, outside / "copy")
        shutil.rmtree(folder)
        folder.symlink_to(outside / "copy")
        return Change(kind, _name(root, folder), link=True)
    if kind == "strange name":
        (file.parent / f"a{ESCAPES}".replace("\x00", "")).write_bytes(b"x")
        return Change(kind, name, sealed=True)
    if kind == "link":
        shutil.copy(file, outside / "copy")
    elif kind == "huge":
        os.truncate(file, 3 * 2**30)  # without content, so it takes no room
        return Change(kind, name)
    file.unlink()
    targets = {
        "link": outside / "copy",
        "loop": file,
        "device": "/dev/zero",
        "secret": "/etc/passwd",
    }
    if kind in targets:
        file.symlink_to(targets[kind])
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "empty":
        file.write_bytes(b"")
    return Change(kind, name, link=kind == "link" and root.is_dir())


def _name(root: Path, file: Path) -> str:
    return file.name if file == root else str(file.relative_to(root))


# Use ---------------------------------------------------------------------------------------------


@dataclass
class Used:
    """What came of using a folder."""

    file: str = ""  # that was changed: what cannot depend on it need not be tried
    answer: list[str] = field(default_factory=list)
    refused: bool = False
    wrong: list[tuple[str, str]] = field(default_factory=list)  # (traceback …, detail)

    def verb(self, *words: str | Path, answer: bool = False) -> None:
        """A command line: it succeeds, or it says one sentence."""
        from rivals.cli.main import main

        out, err, status = io.StringIO(), io.StringIO(), 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main([str(word) for word in words])
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            self.wrong.append(("traceback", f"{words[0]}: {last_lines()}"))
            return
        printed, told = out.getvalue(), err.getvalue()
        lines = told.splitlines()
        if "memory is used up" in told:
            self.wrong.append(("memory", f"{words[0]}: {told.strip()[:200]}"))
        if "Traceback" in told or (status and status not in (1, 2)):
            self.wrong.append(("traceback", f"{words[0]}: status {status}: {told.strip()[-300:]}"))
        elif status == 2 and lines and not all(line.startswith("rivals: ") for line in lines):
            self.wrong.append(("traceback", f"{words[0]}: no sentence: {told.strip()[:300]!r}"))
        if CONTROL.search(printed + told):
            found = CONTROL.search(printed + told)
            assert found
            text = (printed + told)[max(0, found.start() - 60) : found.end() + 20]
            self.wrong.append(("unprintable", f"{words[0]}: {text!r}"))
        self.refused |= status != 0
        if answer:
            self.answer.append(printed if not status else "refused")

    def call(self, name: str, function: Callable[[], Any]) -> None:
        """A function of the package: a value, or a RivalsError of one line."""
        from rivals.errors import RivalsError

        try:
            self.answer.append(repr(function()))
        except RivalsError as error:
            self.refused = True  # the command line takes control codes out of every sentence
            if len(str(error)) > LONGEST:
                self.wrong.append(("traceback", f"{name}: an endless sentence: {error!r:.200}"))
        except MemoryError:
            self.wrong.append(("memory", f"{name}: MemoryError"))
        except BaseException:
            self.wrong.append(("traceback", f"{name}: {last_lines()}"))


def last_lines() -> str:
    """The end of a traceback, with its last places in the package."""
    text = traceback.format_exc().strip().splitlines()
    ours = [line.strip() for line in text if "/rivals/" in line][-2:]
    return " | ".join([*(line.rpartition("/rivals/")[2] for line in ours), text[-1][:200]])


def has_verb(name: str) -> bool:
    from rivals.cli.main import app

    return any(each.name == name for each in app.registered_commands)


def use_model(root: Path, plan: dict[str, Any], used: Used) -> None:
    used.verb("info", root)
    used.verb("predict", plan["picture"], "--model", root, "--json", answer=True)
    if has_verb("check"):
        used.verb("check", root)
    if used.file.startswith("tasks") or not used.refused:  # it reads what `predict` reads
        used.verb("drop", plan["task"], "--model", root)


def use_run(root: Path, plan: dict[str, Any], used: Used) -> None:
    from rivals.experiment.stored_run import StoredRun

    used.verb("info", root)
    if has_verb("check"):
        used.verb("check", root)
    for task in plan["tasks"]:
        if task in used.file or not used.file.startswith("tickets/"):
            used.call("ticket", lambda task=task: scores(StoredRun(root).ticket(task)))
        else:
            used.answer.append(plan["usual"][len(used.answer)])
    if used.file.startswith("tickets/"):
        used.answer += plan["usual"][len(used.answer) :]
        return
    used.verb("run", "digits", *plan["words"], "--out", root, "--resume")

    def results() -> Any:
        found = json.loads((root / "results.json").read_text())
        return found["summary"]["accuracy"], found["matrix"]

    if not used.refused:
        used.call("results", results)


def use_ticket(root: Path, plan: dict[str, Any], used: Used) -> None:
    from rivals.tickets.ticket import Ticket

    used.verb("info", root)
    if has_verb("check"):
        used.verb("check", root)
    used.call("ticket", lambda: scores(Ticket.load(root)))


def scores(ticket: Any) -> Any:
    """What a ticket answers to a picture, with the names."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    answer = ticket.predict(Image.fromarray(pixels))
    return [(each.label, each.task, each.confidence) for each in answer.choices]


def use_export(root: Path, plan: dict[str, Any], used: Used) -> None:
    words = ["--run-native"] if plan.get("native") else []
    used.verb("predict", plan["picture"], "--model", root, "--json", *words, answer=True)
    if has_verb("check"):
        used.verb("check", root)


def use_collection(root: Path, plan: dict[str, Any], used: Used) -> None:
    from rivals.web.collection import Collection
    from rivals.web.jobs import Jobs
    from rivals.web.training_job import TrainingJob

    def seen() -> Any:
        found = Collection(root / "pictures")
        shown = []
        for task in found.listing():
            for each in task["classes"]:
                for picture in each["newest"]:
                    small = found.thumbnail(task["task"], each["name"], picture)
                    shown.append((task["task"], each["name"], picture, digest(small)))
        return sorted(shown)

    def queued() -> Any:
        jobs = Jobs(root / "trainings", lambda job: [], lambda job: False)
        ends = [TrainingJob(jobs.events(j["id"]).parent).outcome() for j in jobs.listing()]
        return jobs.listing(), ends

    used.call("collection", seen)
    used.call("trainings", queued)


def use_picture(root: Path, plan: dict[str, Any], used: Used) -> None:
    words = ["--json"] if root.suffix in (".png", ".gif", ".webp") else []
    used.verb("predict", root, "--model", plan["model"], *words)


def use_grid(root: Path, plan: dict[str, Any], used: Used) -> None:
    from rivals.experiment.grid.grid_file import from_file

    used.call("grid", lambda: len(from_file(root)))
    if Path("fuzzed").exists():
        used.wrong.append(("silent", "YAML ran a command"))


def use_ancestor(root: Path, plan: dict[str, Any], used: Used) -> None:
    import torch

    from rivals.ancestors.making import features
    from rivals.model.ancestor_file import read
    from rivals.nn.network_plan import NetworkPlan
    from rivals.seeds import Seed

    def seen() -> Any:
        found = read(root)
        network = NetworkPlan(found.network(2), (1, found.side or 8, found.side or 8)).rivals(
            Seed(0)
        )
        found.give_to(network)
        noise = torch.rand(2, *network.input_shape, generator=Seed(0).torch())
        return features(network, noise).tolist(), found.within.tolist(), str(found.preparation(1))

    used.verb("info", root)
    used.verb("check", root)
    used.call("ancestor", seen)


USES: dict[str, Callable[[Path, dict[str, Any], Used], None]] = {
    "model": use_model, "run": use_run, "ticket": use_ticket, "onnx": use_export,
    "ort": use_export, "c": use_export, "collection": use_collection, "picture": use_picture,
    "grid": use_grid, "descendant": use_model, "ancestor": use_ancestor,
}  # fmt: skip
CHECKED = ("model", "run", "ticket", "onnx", "ort", "c", "descendant", "ancestor")  # by checksums


# A child -----------------------------------------------------------------------------------------


def tree_mark(folder: Path) -> str:
    """A fingerprint of all that is in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(str(path.relative_to(folder)).encode(errors="surrogateescape"))
        if path.is_file() and not path.is_symlink():
            found.update(path.read_bytes())
    return found.hexdigest()


def peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def one(kind: str, number: int, plan: dict[str, Any], place: Path, usual: Used) -> dict[str, Any]:
    """One change of a copy, and its use."""
    chance = random.Random(f"{plan['seed']} {kind} {number}")
    goods = [Path(good) for good in plan["good"]]
    good = goods[number % len(goods)]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    root, outside = place / good.name, place / "outside"
    shutil.copytree(good, root) if good.is_dir() else shutil.copy(good, root)
    made = change(root, outside, chance, HOW[number % len(HOW)])
    before = tree_mark(outside) if outside.exists() else ""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    used = Used(made.file)
    USES[kind](root, {**plan, "usual": usual.answer}, used)
    taken = peak()
    wrong = list(used.wrong)
    if taken > MEMORY:
        wrong.append(("memory", f"{taken / 2**30:.1f} GB"))
    if outside.exists() and tree_mark(outside) != before:
        wrong.append(("silent", "files outside of the folder were changed"))
    if made.link and not used.refused and used.answer == usual.answer:
        wrong.append(("silent", "a link was followed"))
    accepted = not (used.refused or used.wrong)
    if kind in CHECKED and not made.sealed and accepted and used.answer != usual.answer:
        wrong.append(("silent", f"another answer: {used.answer!r:.300}"))
    return {
        "number": number, "change": made.label, "file": made.file, "refused": used.refused,
        "wrong": wrong,
    }  # fmt: skip


def usual(kind: str, plan: dict[str, Any], place: Path) -> Used:
    """What is answered when nothing was changed."""
    good = Path(plan["good"][0])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    root = place / good.name
    shutil.copytree(good, root) if good.is_dir() else shutil.copy(good, root)
    used = Used()
    USES[kind](root, plan, used)
    assert not used.refused, (kind, used)
    assert not used.wrong, (kind, used.wrong)
    return used


def child(kind: str, first: int, plan: dict[str, Any], channel: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    place = Path(plan["place"]) / kind
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    memoise()
    try:
        known = usual(kind, plan, place / "usual")
        for number in range(first, plan["count"]):
            os.write(channel, (json.dumps({"begins": number}) + "\n").encode())
            found = one(kind, number, plan, place / "case", known)
            os.write(channel, (json.dumps(found) + "\n").encode())
    except BaseException:
        told = {"failed": traceback.format_exc()}
        os.write(channel, (json.dumps(told) + "\n").encode())
    os._exit(0)


def memoise() -> None:
    """The same C is compiled once."""
    from rivals.edge import runtime_c

    real, made = runtime_c.build, {}

    def build(files: Any, place: Path) -> Path:
        if files.content not in made:
            kept = Path("compiled").absolute()
            kept.mkdir(exist_ok=True)
            made[files.content] = shutil.copy(real(files, place), kept / f"{len(made)}.so")
        return Path(made[files.content])

    runtime_c.build = build


# The parent --------------------------------------------------------------------------------------


def state(process: int) -> tuple[float, bool]:
    """Seconds of CPU that a child and those it waited for have used; whether it runs or would."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"), fields[0] == "R"


def watch(kind: str, plan: dict[str, Any]) -> dict[str, Any]:
    """All changes of one kind, by as many children as it takes."""
    cases: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    first, begun = 0, time.monotonic()
    cpu = os.times()
    while first < plan["count"] and sum(each["what"] == "hang" for each in findings) < MOST_HANGS:
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read)
            child(kind, first, plan, write)
        os.close(write)
        now, buffer, how = first - 1, b"", "ended"
        spent, asleep = 0.0, 0.0
        while True:
            ready, _, _ = select.select([read], [], [], 0.5)
            used, runs = state(process)
            if not ready:
                asleep = 0.0 if runs else asleep + 0.5
                if used - spent > (SECONDS if now >= first else BEGINNING) or asleep > ASLEEP:
                    how = "hang"
                    break
                continue
            spent, asleep = used, 0.0
            piece = os.read(read, 2**20)
            if not piece:
                break
            *lines, buffer = (buffer + piece).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "failed" in message:
                    raise RuntimeError(f"{kind} {now}: {message['failed']}")
                if "begins" in message:
                    now = message["begins"]
                else:
                    cases.append(message)
        if how == "hang":
            os.kill(process, signal.SIGKILL)
        os.close(read)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        done = {case["number"] for case in cases}
        if now in done and now == plan["count"] - 1:
            break
        if how != "hang":
            how = f"ended by {signal.Signals(-status).name}" if status < 0 else "ended"
        findings.append({
            "what": "hang" if how == "hang" else "traceback", "number": now, "detail": how,
            **describe(kind, now, plan),
        })  # fmt: skip
        first = now + 1
    for case in cases:
        for what, detail in case["wrong"]:
            rest = {key: case[key] for key in ("number", "change", "file")}
            findings.append({"what": what, "detail": detail, **rest})
    return {
        "mutations": plan["count"], "refused": sum(case["refused"] for case in cases),
        "accepted": sum(not case["refused"] for case in cases), "findings": findings,
        "seconds": round(time.monotonic() - begun, 1),
        "cpu": round(sum(os.times()[2:4]) - sum(cpu[2:4]), 1),
    }  # fmt: skip


def describe(kind: str, number: int, plan: dict[str, Any]) -> dict[str, str]:
    """What the change was that ended a child."""
    chance = random.Random(f"{plan['seed']} {kind} {number}")
    good = Path(plan["good"][number % len(plan["good"])])
    place = Path(plan["place"]) / kind / "told"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    root = place / good.name
    shutil.copytree(good, root) if good.is_dir() else shutil.copy(good, root)
    made = change(root, place / "outside", chance, HOW[number % len(HOW)])
    return {"change": made.label, "file": made.file}


def main() -> None:
    plans = json.loads(Path(sys.argv[1]).read_text())
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch

    import rivals.cli.main
    import rivals.experiment.stored_run
    import rivals.model.learning
    import rivals.web.service  # noqa: F401

    torch.set_num_threads(1)
    sys.setrecursionlimit(1000)
    report = {kind: watch(kind, plan) for kind, plan in plans.items()}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
