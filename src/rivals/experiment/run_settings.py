"""From a benchmark, a method, a preset and a few words on the command line to complete settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rivals.errors import RivalsError, unknown
from rivals.learn.method import methods
from rivals.learn.training_settings import TrainingSettings
from rivals.nn.network_plan import NetworkSettings
from rivals.settings import Settings, find_path, leaves, merged, put
from rivals.streams.stream import Stream, streams

GROUPS = ("stream", "network", "training")
RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides the result of a run, beside the data and the code."""

    benchmark: str
    method: str
    preset: str
    seed: int
    stream: Settings
    network: NetworkSettings
    training: TrainingSettings
    threads: int = 1
    device: str = "cpu"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as config.yaml holds them."""
        groups = {name: getattr(self, name).model_dump(mode="json") for name in GROUPS}
        return {**vars(self), **groups}


def resolve(
    benchmark: str,
    method: str = "twta",
    preset: str = "default",
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    threads: int = 1,
    device: str = "cpu",
    stream: Stream | None = None,
) -> RunSettings:
    """Defaults, then the recipe, then what was set by hand: the later wins.

    A `stream` that was built already has no settings, and takes the defaults of the method.

    A setting is named by its path in its group, `competition.share`, or by its last word where no
    other setting is called so.
    """
    models: dict[str, type[Settings]] = {
        "stream": streams[benchmark].settings if stream is None else Settings,
        "network": NetworkSettings,
        "training": methods[method].settings_class,
    }
    values = recipe(benchmark if stream is None else "own:stream", preset, method)
    for key, value in (overrides or {}).items():
        group, path = find_setting(key, models)
        put(values[group], path, value)
    if seed < 0:
        raise RivalsError(f"seed is {seed}, but must not be negative.")
    if threads < 1:
        raise RivalsError(f"threads is {threads}, but must be at least 1.")
    built: dict[str, Any] = {group: models[group](**values[group]) for group in GROUPS}
    return RunSettings(benchmark, method, preset, seed, **built, threads=threads, device=device)


def find_setting(key: str, models: dict[str, type[Settings]]) -> tuple[str, str]:
    """The group and the path of a setting, by its path or by its last word."""
    groups = {path: group for group, model in models.items() for path, _ in leaves(model)}
    path = find_path(key, list(groups))
    return groups[path], path


def parse_overrides(texts: list[str]) -> dict[str, str]:
    """`key=value` words → a dictionary."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise RivalsError(f"'{text}' is no setting; write --set key=value.")
        pairs[key.strip()] = value.strip()
    return pairs


def recipe(benchmark: str, preset: str, method: str) -> dict[str, dict[str, Any]]:
    """The settings of a recipe file that concern `method`, by group.

    A preset is a recipe of the benchmark, an operating point of a method (then on the benchmark's
    default), or both, as in `small+wsn-8`; points may follow each other. A benchmark of one's own
    has the preset "default".
    """
    name, *chosen = preset.split("+")
    known = presets(benchmark)
    if name in points() and name not in known:
        name, chosen = "default", [name, *chosen]
    if name not in known:
        raise unknown(f"preset of {benchmark}", name, known)
    content = read_recipe(f"{benchmark}/{name}") if own_recipes(benchmark) else {}
    for point in chosen:
        if point not in points():
            raise unknown("operating point", point, points())
        content = merged(content, read_recipe(f"points/{point}"))
    groups: dict[str, dict[str, Any]] = {g: dict(content.get(g) or {}) for g in GROUPS}
    for section in methods[method].recipe_sections():
        groups["training"] = merged(groups["training"], content.get(section) or {})
    return groups


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe on top of the one that it `extends`, group by group."""
    content = yaml.safe_load((RECIPES / f"{name}.yaml").read_text()) or {}
    base = content.pop("extends", None)
    content = {group: values or {} for group, values in content.items()}
    return content if base is None else merged(read_recipe(base), content)


def points() -> list[str]:
    """The operating points of methods, which go with every benchmark."""
    return sorted(path.stem for path in (RECIPES / "points").glob("*.yaml"))


def own_recipes(benchmark: str) -> list[str]:
    """The names of the recipe files of a benchmark; none for a user's own."""
    if ":" in benchmark:
        return []
    return sorted(path.stem for path in (RECIPES / benchmark).glob("*.yaml"))


def presets(benchmark: str) -> list[str]:
    """The presets that a benchmark has."""
    return own_recipes(benchmark) or ["default"]
