"""Settings: every recipe resolves, the later word wins, and nonsense does not get in."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import create_model

from rivals.errors import RivalsError
from rivals.experiment.run_settings import (
    GROUPS,
    RECIPES,
    parse_overrides,
    presets,
    read_recipe,
    recipe,
    resolve,
)
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkSettings
from rivals.settings import FORMER_NAMES, Settings, leaves, merged
from rivals.streams.stream import streams

FILES = sorted(RECIPES.rglob("*.yaml"))
POINTS = sorted(path.stem for path in FILES if path.parent.name == "points")
PRESETS = [(p.parent.name, p.stem) for p in FILES if p.parent not in (RECIPES, RECIPES / "points")]
CLASSES: dict[str, type[Any]] = {
    "network": NetworkSettings,
    **{f"stream {name}": streams[name].settings for name in streams},
    **{f"method {name}": methods[name].settings_class for name in methods},
}
FIELDS = [
    pytest.param(cls, path, field.annotation, id=f"{name} {path}")
    for name, cls in CLASSES.items()
    for path, field in leaves(cls)
]


def of_type(hint: Any) -> type[Settings]:
    """Settings with one field of this type."""
    return create_model("One", __base__=Settings, x=(hint, ...))


def test_there_are_recipes() -> None:
    assert {("digits", "default"), ("digits", "paper"), ("digits-permuted", "default")} <= set(
        PRESETS
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RECIPES)))
def test_a_recipe_says_what_it_is(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines[0]) > 20
    known = {*GROUPS, *methods, "extends"}
    assert set(yaml.safe_load(path.read_text())) <= known, "a group that nobody reads"


@pytest.mark.parametrize(("stream", "preset"), PRESETS)
def test_every_recipe_resolves_for_every_method(stream: str, preset: str) -> None:
    for method in methods:
        settings = resolve(stream, method, preset, seed=4)
        assert (settings.benchmark, settings.method, settings.preset, settings.seed) == (
            stream, method, preset, 4,
        )  # fmt: skip
        plain = settings.to_dict()
        for group, chosen in recipe(stream, preset, method).items():
            assert merged(plain[group], chosen) == plain[group], "the recipe's values are in it"
        assert yaml.safe_load(yaml.safe_dump(plain)) == plain, "config.yaml holds it all"


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.parametrize("stream", list(streams))
def test_no_name_is_in_two_groups(stream: str, method: str) -> None:
    classes = (streams[stream].settings, NetworkSettings, methods[method].settings_class)
    names = [path for cls in classes for path, _ in leaves(cls)]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)


def test_no_two_settings_are_told_apart_by_an_ending() -> None:
    """`width` beside `widths`, `unit` beside `units`: who reads fast takes one for the other."""
    names = {path.rpartition(".")[2] for cls in CLASSES.values() for path, _ in leaves(cls)}
    assert not {name for name in names if {f"{name}s", f"{name}es"} & names}


@pytest.mark.parametrize("old", FORMER_NAMES)
def test_a_name_of_before_is_refused_with_the_present_one(old: str) -> None:
    new, known = FORMER_NAMES[old], {name: [p for p, _ in leaves(c)] for name, c in CLASSES.items()}
    assert not any(old in paths for paths in known.values()), "it is a name again"
    for name in (name for name, paths in known.items() if new in paths):
        expected = f"^The setting '{old}' is now named {re.escape(new)}; use that name\\.$"
        with pytest.raises(RivalsError, match=expected):
            CLASSES[name](**{old: "4"})
    method = "er" if new in known["method er"] else "twta"
    with pytest.raises(RivalsError, match=re.escape(new)):
        resolve("digits", method, overrides={old: "4"})


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS)
def test_every_default_is_a_valid_value(cls: type[Settings], name: str, hint: Any) -> None:
    value: Any = cls()
    for part in name.split("."):
        value = getattr(value, part)
    assert cls.from_paths({name: value}) == cls()


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS)
def test_every_setting_has_help(cls: type[Settings], name: str, hint: Any) -> None:
    assert dict(leaves(cls))[name].description, "what --help says of it"


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS)
def test_every_setting_refuses_nonsense(cls: type[Settings], name: str, hint: Any) -> None:
    base = typing.get_origin(hint) or hint
    nonsense: dict[Any, list[Any]] = {
        int: ["-5", "1.5", "abc", "", "[1", "true", None, [1]],
        float: ["-5", "nan", "abc", "", "{", "true", None, [1.0]],
        bool: ["maybe", "1", "", None],
        str: [None, [1]],
        typing.Literal: ["no such word", None, [1]],
        tuple: ["-5", "0", "a-b", "8-", "1.5", "8,x", "[8,", [None]],
    }
    for value in nonsense[base]:
        with pytest.raises(RivalsError) as error:
            cls.from_paths({name: value})
        assert name in str(error.value)
        assert "\n" not in str(error.value)


def test_what_is_set_by_hand_beats_the_recipe_which_beats_the_default() -> None:
    from rivals.learn.training_settings import TrainingSettings

    recipe_ = read_recipe("digits/default")["training"]
    assert recipe_["epochs"] != TrainingSettings().epochs
    assert resolve("digits").training.epochs == recipe_["epochs"]
    changed = resolve("digits", overrides={"epochs": "3", "class_order": "seeded", "units": 4})
    assert (changed.training.epochs, changed.stream.class_order, changed.network.units) == (
        3, "seeded", 4,
    )  # fmt: skip
    assert changed.training.lr == recipe_["lr"]
    assert changed.training.momentum == TrainingSettings().momentum


def test_a_recipe_extends_another() -> None:
    base, mine = read_recipe("twta-paper"), read_recipe("digits/paper")
    own = yaml.safe_load((RECIPES / "digits" / "paper.yaml").read_text())
    assert own["extends"] == "twta-paper"
    assert "extends" not in mine
    assert mine["twta"] == base["twta"]
    assert mine["network"] == {**base["network"], **own["network"]}
    assert own["network"].items() - base["network"].items(), "it adds something"
    paper = resolve("digits", preset="paper")
    training: Any = paper.training
    assert (training.competition.share, training.protect) == (1.0, "none")
    assert paper.network.activation == "linear"


def test_settings_of_one_method_do_not_reach_another() -> None:
    assert "competition" in recipe("digits", "paper", "twta")["training"]
    assert "competition" in recipe("digits", "paper", "random-ticket")["training"]
    assert "competition" not in recipe("digits", "paper", "finetune")["training"]
    assert recipe("digits", "paper", "finetune")["training"]["epochs"] == 100


def test_presets_are_the_files() -> None:
    for benchmark in {benchmark for benchmark, _ in PRESETS}:
        assert benchmark in streams
        assert presets(benchmark) == sorted(p for b, p in PRESETS if b == benchmark)


@pytest.mark.parametrize("point", POINTS)
def test_an_operating_point_goes_with_every_benchmark(point: str) -> None:
    """Alone on the default, or on any recipe; it changes its own settings and no others."""
    method = "twta" if point in ("j8", "j32", "gated", "one-draw") else point.split("-")[0]
    changes = read_recipe(f"points/{point}")
    assert set(changes) <= {method, "network"}
    for benchmark, base in (("cifar100", "default"), ("pmnist", "small"), ("digits", "default")):
        plain = resolve(benchmark, method, base)
        with_point = resolve(benchmark, method, f"{base}+{point}")
        for settings, group in (
            (changes.get("network"), "network"),
            (changes.get(method), "training"),
        ):
            before = getattr(plain, group)
            expected = type(before)(**merged(before.model_dump(), settings or {}))
            assert getattr(with_point, group) == expected
        if base == "default":
            alone = resolve(benchmark, method, point)
            assert (alone.network, alone.training) == (with_point.network, with_point.training)


def test_operating_points_follow_each_other() -> None:
    both = resolve("cifar100", "twta", "compare+j8+one-draw")
    assert both.network.units == 8
    assert both.training.competition.share == 0
    assert resolve("digits", "twta", "one-draw+j8").network.units == 8
    with pytest.raises(RivalsError, match="There is no operating point named 'j9'"):
        resolve("cifar100", "twta", "compare+one-draw+j9")


@pytest.mark.parametrize(
    "preset", ["small+wsn-9", "smal+wsn-8", "wsn-9", "small+", "+wsn-8", "a+b+c"]
)
def test_a_preset_that_is_none_gets_a_sentence(preset: str) -> None:
    with pytest.raises(RivalsError, match=r"preset of cifar100|operating point"):
        resolve("cifar100", "wsn", preset)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("3", int, 3), (3, int, 3), ("1_000", int, 1000), ("0", int, 0), ("-2", int, -2),
        ("3", float, 3.0), (3, float, 3.0), ("1e-3", float, 1e-3), ("1E5", float, 1e5),
        (".5", float, 0.5), ("0.25", float, 0.25),
        ("true", bool, True), ("false", bool, False), ("no", bool, False), (True, bool, True),
        ("relu", str, "relu"), ("3", str, "3"), (3, str, "3"), ("", str, ""), ("true", str, "true"),
        ("16-48-400", tuple[int, ...], (16, 48, 400)),
        ("16,48,400", tuple[int, ...], (16, 48, 400)),
        ("[16, 48, 400]", tuple[int, ...], (16, 48, 400)), ("16", tuple[int, ...], (16,)),
        (" 16 , 48 ", tuple[int, ...], (16, 48)),
        ([16, 48], tuple[int, ...], (16, 48)), (16, tuple[int, ...], (16,)),
        ("", tuple[int, ...], ()), ("[]", tuple[int, ...], ()), ((), tuple[int, ...], ()),
        ("-16,48", tuple[int, ...], (-16, 48)), 
    ],
)  # fmt: skip
def test_values_take_the_type_of_their_setting(value: Any, hint: Any, expected: Any) -> None:
    found = of_type(hint)(x=value).x
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "sentence"),
    [
        ("1.5", int, "x must be a whole number, but is '1.5'."),
        ("true", int, "x must be a whole number, but is 'true'."),
        ("1e3", int, "x must be a whole number, but is '1e3'."),
        ("", int, "x must be a whole number, but is ''."),
        ("[1", int, "x must be a whole number, but is '[1'."),
        ("!!python/name:os.system", int,
         "x must be a whole number, but is '!!python/name:os.system'."),
        ("fast", float, "x must be a number, but is 'fast'."),
        (True, float, "x must be a number, but is 'True'."),
        ("1", bool, "x must be true or false, but is '1'."),
        (None, str, "x must be a word, but is 'None'."),
        ("16-a", tuple[int, ...], "x must be a whole number, but is 'a'."),
        ("16-", tuple[int, ...], "x must be a whole number, but is ''."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(value: Any, hint: Any, sentence: str) -> None:
    with pytest.raises(RivalsError) as error:
        of_type(hint)(x=value)
    assert str(error.value) == sentence


def test_words_of_the_command_line() -> None:
    assert parse_overrides(["a=1", " b = x=y ", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for text in ("a", "=1", ""):
        with pytest.raises(RivalsError, match="write set=key=value"):
            parse_overrides([text])


def ancestry(name: str) -> list[str]:
    """The recipes that one rests on, nearest first."""
    base = yaml.safe_load((RECIPES / f"{name}.yaml").read_text()).get("extends")
    return [base, *ancestry(base)] if base else []


def test_official_settings_do_not_rest_on_a_default_that_may_change() -> None:
    five = {"cifar100", "tiny-imagenet", "pmnist", "omniglot-rotation", "five-datasets"}
    official = [path for path in RECIPES.glob("*/*.yaml") if path.stem in methods]
    assert len(official) > 20
    for path in official:
        found = ancestry(f"{path.parent.name}/{path.stem}")
        assert not set(found) & {f"{benchmark}/default" for benchmark in five}, path
