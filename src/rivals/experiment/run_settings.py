"""From a benchmark, a method, a preset and a few words on the command line to complete settings."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rivals.errors import RivalsError, unknown
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkSettings
from rivals.streams.stream import streams

GROUPS = ("stream", "network", "training")
RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Settings:
    """Everything that decides the result of a run, beside the data and the code."""

    benchmark: str
    method: str
    preset: str
    seed: int
    stream: Any
    network: NetworkSettings
    training: Any
    threads: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as config.yaml holds them."""
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        return plain


def resolve(
    benchmark: str,
    method: str = "twta",
    preset: str = "default",
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    threads: int = 1,
) -> Settings:
    """Defaults, then the recipe, then what was set by hand: the later wins."""
    classes = {
        "stream": streams[benchmark].settings,
        "network": NetworkSettings,
        "training": methods[method].settings_class,
    }
    values: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for group, chosen in recipe(benchmark, preset, method).items():
        values[group].update(chosen)
    for key, value in (overrides or {}).items():
        group = _group_of(key, classes)
        values[group][key] = value
    if seed < 0:
        raise RivalsError(f"seed is {seed}, but must not be negative.")
    if threads < 1:
        raise RivalsError(f"threads is {threads}, but must be at least 1.")
    built = {group: build(classes[group], values[group]) for group in GROUPS}
    return Settings(benchmark, method, preset, seed, **built, threads=threads)


def build(cls: type[Any], values: dict[str, Any]) -> Any:
    """An instance of a settings class, every value brought to the type of its field."""
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in hints:
            raise unknown("setting", key, hints)
    return cls(**{key: coerce(key, value, hints[key]) for key, value in values.items()})


def coerce(key: str, value: Any, hint: Any) -> Any:
    """`value` as the type a setting has, or one sentence about what was expected."""
    if typing.get_origin(hint) is tuple:
        items = _items(value) if isinstance(value, str) else value
        items = items if isinstance(items, list | tuple) else [items]
        return tuple(coerce(key, item, typing.get_args(hint)[0]) for item in items)
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    given = value
    if isinstance(value, str) and hint is not str:
        with contextlib.suppress(yaml.YAMLError):
            value = yaml.safe_load(value)
        if isinstance(value, str) and hint is float:  # YAML reads 1e-3 as text
            with contextlib.suppress(ValueError):
                value = float(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if hint is float and (whole or isinstance(value, float)):
        return float(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and whole:
        return value
    if hint is str and isinstance(value, str | int | float):
        return str(value)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    raise RivalsError(f"{key} must be {names[hint]}, but is '{given}'.")


def _items(text: str) -> list[str]:
    """`16-48-400`, `16,48,400` or `[16, 48, 400]` → its items."""
    inside = text.strip().removeprefix("[").removesuffix("]").strip()
    return re.split(r"\s*,\s*|(?<=\d)-", inside) if inside else []


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
    default), or both, as in `small+wsn-8`.
    """
    name, plus, point = preset.partition("+")
    if not plus and name in points() and name not in presets(benchmark):
        name, plus, point = "default", "+", preset
    if name not in presets(benchmark):
        raise unknown(f"preset of {benchmark}", name, presets(benchmark))
    if plus and point not in points():
        raise unknown("operating point", point, points())
    content = read_recipe(f"{benchmark}/{name}")
    if plus:
        content = merged(content, read_recipe(f"points/{point}"))
    groups: dict[str, dict[str, Any]] = {g: dict(content.get(g) or {}) for g in GROUPS}
    names = {methods[name]: name for name in methods}
    for ancestor in reversed(methods[method].__mro__):  # random-ticket takes what twta is given
        if ancestor in names:
            groups["training"].update(content.get(names[ancestor]) or {})
    return groups


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe on top of the one that it `extends`, group by group."""
    content = yaml.safe_load((RECIPES / f"{name}.yaml").read_text()) or {}
    base = content.pop("extends", None)
    return dict(content) if base is None else merged(read_recipe(base), content)


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Two recipes, group by group; the second wins."""
    return {**base, **{g: {**(base.get(g) or {}), **(more[g] or {})} for g in more}}


def points() -> list[str]:
    """The operating points of methods, which go with every benchmark."""
    return sorted(path.stem for path in (RECIPES / "points").glob("*.yaml"))


def presets(benchmark: str) -> list[str]:
    """The names of the recipes of a benchmark."""
    return sorted(path.stem for path in (RECIPES / benchmark).glob("*.yaml"))


def _group_of(key: str, classes: dict[str, type[Any]]) -> str:
    for group, cls in classes.items():
        if key in {f.name for f in dataclasses.fields(cls)}:
            return group
    known = {f.name for cls in classes.values() for f in dataclasses.fields(cls)}
    raise unknown("setting", key, known)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
