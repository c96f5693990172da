"""What to run: methods × seeds × benchmarks, from words on the command line or from a YAML file.

preset: small                   # what stands at the top holds for every group
groups:
  - benchmarks: [cifar100, pmnist]
    methods: [twta, gpm]
    seeds: [0, 1, 2]
  - benchmarks: [cifar100]
    methods: [twta]
    set: {units: 32}
    name: j32                   # part of the folders' names
    expect: {task_known: [60, null]}  # see expectations.py

`on: validation` measures accuracy on validation images, to choose settings by.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError, unknown
from rivals.experiment.grid.expectations import Band, parse
from rivals.experiment.run_names import run_name
from rivals.experiment.run_settings import RunSettings, parse_overrides, resolve
from rivals.io.reading import read_yaml
from rivals.learn.method import methods as known_methods
from rivals.nn.network_plan import networks
from rivals.streams.on_validation import MEASURED_ON

DEFAULTS = {
    "methods": ["twta"], "seeds": [0], "preset": "default", "set": {}, "name": "", "on": "test",
    "device": "cpu", "expect": {},
}  # fmt: skip
KEYS = ("benchmarks", *DEFAULTS)
MOST_RUNS = 20_000  # of a grid


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid, in the words of `rivals run`."""

    benchmark: str
    method: str = "twta"
    preset: str = "default"
    seed: int = 0
    changes: tuple[str, ...] = ()  # key=value, as --set takes them
    name: str = ""  # of its group; part of the folder's name
    on: str = "test"  # images that accuracy is measured on: test | validation
    device: str = "cpu"
    expect: tuple[Band, ...] = field(default=(), compare=False)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return run_name(self.benchmark, self.method, self.preset, self.seed, self.name, self.on)

    @property
    def kind(self) -> tuple[str, ...]:
        """What it has in common with the same run of another seed."""
        return (self.benchmark, self.method, self.preset, self.name, self.on, *self.changes)

    def settings(self) -> RunSettings:
        """Complete settings, or one sentence that names the run."""
        try:
            changes = parse_overrides(list(self.changes))
            settings = resolve(
                self.benchmark, self.method, self.preset, self.seed, changes, device=self.device
            )
            networks.check_allowed(settings.network.architecture)  # a worker builds it
            return settings
        except RivalsError as error:
            raise RivalsError(f"{self.folder}: {error}") from error

    def command(self, out: Path) -> str:
        """The command that starts, or resumes, this run alone."""
        words = ["rivals", "run", self.benchmark, "--method", self.method, "--preset", self.preset]
        for change in self.changes:
            words += ["--set", change]
        if self.on != "test":
            words += ["--on", self.on]
        if self.device != "cpu":
            words += ["--device", self.device]
        words += ["--seed", str(self.seed), "--out", str(out / self.folder)]
        return shlex.join([*words, "--resume"] if (out / self.folder).exists() else words)


def plan(
    benchmarks: str | Sequence[str],
    methods: str | Sequence[str],
    seeds: int | Sequence[int],
    preset: str,
    settings: Mapping[str, Any],
    name: str = "",
    on: str = "test",
    device: str = "cpu",
) -> list[PlannedRun]:
    """Every method with every seed on every benchmark."""
    if not isinstance(seeds, int):
        seeds = list(seeds)
    group = {
        "benchmarks": benchmarks if isinstance(benchmarks, str) else list(benchmarks),
        "methods": methods if isinstance(methods, str) else list(methods),
        "seeds": seeds, "preset": preset, "set": dict(settings), "name": name, "on": on,
        "device": device, "expect": {},
    }  # fmt: skip
    return checked(_runs(group))


def from_words(
    benchmarks: str, methods: str, seeds: str, preset: str, changes: list[str], on: str = "test",
    device: str = "cpu",
) -> list[PlannedRun]:  # fmt: skip
    """The grid that command line options describe: `twta,gpm`, `0,1,2` or `0-2`."""
    return plan(
        _words("benchmarks", benchmarks), _words("methods", methods), _seeds(seeds), preset,
        parse_overrides(changes), on=on, device=device,
    )  # fmt: skip


def from_file(path: Path) -> list[PlannedRun]:
    """The grid that a YAML file describes, group by group."""
    content = read_yaml(Path(os.path.realpath(path)), "grid")  # the user named it: links are right
    if not isinstance(content, dict):
        raise RivalsError(f"The grid {path} holds no groups; docs/compare.md shows one.")
    try:
        return checked(_content(content))
    except RivalsError as error:
        raise RivalsError(f"The grid {path}: {error}") from error


def checked(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Each run once; every one of them has valid settings and a folder of its own."""
    by_folder: dict[str, PlannedRun] = {}
    for run in runs:
        other = by_folder.setdefault(run.folder, run)
        if other != run:
            raise RivalsError(
                f"two different runs would share the folder {run.folder}; "
                "give one of their groups a name."
            )
    for run in by_folder.values():
        run.settings()
    if not by_folder:
        raise RivalsError("there is nothing to run; name benchmarks and methods.")
    return list(by_folder.values())


def _content(content: dict[str, Any]) -> list[PlannedRun]:
    common = _keys({key: value for key, value in content.items() if key != "groups"})
    groups = content.get("groups", [{}])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise RivalsError("groups must be a list, each with benchmarks, methods and seeds.")
    found: list[PlannedRun] = []
    for group in map(_keys, groups):
        merged = {**common, **group}
        for key in merged:
            if key not in KEYS:
                raise unknown("key of a grid", key, (*KEYS, "groups"))
        changes = [_mapping(each.get("set")) for each in (common, group)]
        found += _runs({**DEFAULTS, **merged, "set": {**changes[0], **changes[1]}})
        _check_count(len(found))
    return found


def _keys(group: dict[Any, Any]) -> dict[str, Any]:
    """The keys of a group; YAML reads the word `on` as true."""
    return {"on" if key is True else str(key): value for key, value in group.items()}


def _runs(group: dict[str, Any]) -> list[PlannedRun]:
    if "benchmarks" not in group:
        raise RivalsError("a group has no benchmarks; name at least one.")
    benchmarks, methods = (_names(key, group[key]) for key in ("benchmarks", "methods"))
    if methods == ["all"]:
        methods = list(known_methods)
    seeds = group["seeds"] if isinstance(group["seeds"], list) else [group["seeds"]]
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise RivalsError("seeds must be a list of whole numbers, such as [0, 1, 2].")
    preset, name, on = str(group["preset"]), str(group["name"]), str(group["on"])
    if on not in MEASURED_ON:
        raise RivalsError(f"on is '{on}'; use {' or '.join(MEASURED_ON)}.")
    if not re.fullmatch(r"[\w.-]*", name):
        raise RivalsError(f"the name '{name}' must consist of letters, digits, '-', '_' and '.'.")
    changes = tuple(f"{key}={_word(value)}" for key, value in group["set"].items())
    device, expect = str(group["device"]), parse(group["expect"])
    _check_count(len(seeds) * len(benchmarks) * len(methods))
    return [
        PlannedRun(benchmark, method, preset, seed, changes, name, on, device, expect)
        for seed, benchmark, method in product(seeds, benchmarks, methods)
    ]


def _check_count(runs: int) -> None:
    if runs > MOST_RUNS:
        raise RivalsError(f"there are {runs:,} runs, but a grid has at most {MOST_RUNS:,}.")


def _names(key: str, value: Any) -> list[str]:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        kind = {"benchmarks": "stream", "methods": "method"}[key]
        raise RivalsError(
            f"{key} must be a list of names; every run is a process of its own, which finds a "
            f"{kind} of yours as module:name."
        )
    return names


def _mapping(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RivalsError("set must hold settings, such as {epochs: 10}.")
    return value


def _word(value: Any) -> str:
    """A value of YAML as --set takes it."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise RivalsError(f"--{option} names nothing; write names with commas between.")
    return words


def _seeds(text: str) -> list[int]:
    """`0,1,2` or `0-2` → the numbers."""
    found: list[int] = []
    for word in _words("seeds", text):
        span = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", word)
        if not span:
            raise RivalsError(f"'{word}' is no seed; write --seeds 0,1,2 or --seeds 0-2.")
        first, last = int(span[1]), int(span[2] or span[1])
        if not first <= last < first + 10_000:
            raise RivalsError(f"--seeds {word} counts from {first} to {last}; begin with the less.")
        found += range(first, last + 1)
    return found
