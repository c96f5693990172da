"""Settings are pydantic models: types, ranges and help stand in their fields, in one place.

    class OwnSettings(Settings):
        rate: float = Field(0.1, gt=0, description="step size")

A value that does not fit is refused in one sentence that names the setting.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo

from rivals.errors import RivalsError, unknown
from rivals.io.reading import parse_yaml

Own = TypeVar("Own", bound="Settings")
FORMER_NAMES = {  # in rivals 0.1, and their names today
    "network": "architecture",
    "unit": "activation",
    "initial": "init",
    "weights": "storage",
    "batch": "batch_size",
    "compete": "competition.share",
    "way": "competition.gating",
    "live": "competition.active",
    "live_end": "competition.active_end",
    "spread": "competition.init_std",
    "posterior_optimiser": "competition.optimizer",
    "posterior_lr": "competition.lr",
    "gradient_keep": "competition.keep_gradients",
    "grow": "growth.enabled",
    "grow_below": "growth.below",
    "infer": "naming.rule",
    "kept_per_class": "naming.images_per_class",
    "budget": "memory.size",
    "budget_in": "memory.counted_in",
    "norms": "shared_norms",
    "twin": "network_size",
    "width": "network_size",
}
LONGEST_NUMBER = 100  # characters of a number or a truth value that is given as text


class Settings(BaseModel):
    """Settings of one subject; immutable, no unknown names, words of a command line accepted.

    >>> import rivals
    >>> from pydantic import Field
    >>> class AnchorSettings(rivals.Settings):
    ...     strength: float = Field(1.0, ge=0, description="of the penalty")
    >>> AnchorSettings(strength="0.5").strength
    0.5
    >>> AnchorSettings(strength=-1)
    Traceback (most recent call last):
    rivals.errors.RivalsError: strength is -1, but must be at least 0.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _sentence(type(self), error) from error

    @field_validator("*", mode="before")
    @classmethod
    def _from_words(cls, value: Any, info: Any) -> Any:
        """`8-16` for a tuple, `1e-3` for a number, a number for a word."""
        hint = cls.model_fields[info.field_name].annotation
        if get_origin(hint) is tuple:
            return _items(value)
        if isinstance(hint, type) and issubclass(hint, Settings) and isinstance(value, Mapping):
            default = cls.model_fields[info.field_name].default
            return _nested(info.field_name, hint, {**dict(default), **value})
        if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if get_origin(hint) is Literal and isinstance(value, str):
            return next((word for word in get_args(hint) if str(word) == value), value)
        if hint in (int, float, bool):
            if isinstance(value, str) and len(value) <= LONGEST_NUMBER:
                with contextlib.suppress(RivalsError, UnicodeError):
                    read = parse_yaml(value.encode(), "")
                    value = read if isinstance(read, int | float) else value
            if isinstance(value, bool) != (hint is bool):
                raise ValueError("a truth value where a number belongs, or the other way round")
        return value

    def model_post_init(self, context: Any) -> None:
        self.check()

    def check(self) -> None:
        """Refuse settings that do not fit together; overridden where that can happen."""

    @classmethod
    def from_paths(cls: type[Own], values: Mapping[str, Any]) -> Own:
        """Settings by their paths, `competition.share`, or by their last words where those are
        unambiguous."""
        nested: dict[str, Any] = {}
        for key, value in values.items():
            put(nested, find_path(key, [path for path, _ in leaves(cls)]), value)
        return cls(**nested)

    def replace(self: Own, **changes: Any) -> Own:
        """A copy with other values, checked as new ones are."""
        return type(self)(**{**dict(self), **changes})


def _nested(name: str, model: type[Settings], values: dict[str, Any]) -> Settings:
    """The settings below `name`; what is wrong with one is told with its full path."""
    try:
        return model(**values)
    except RivalsError as error:
        first = str(error).partition(" ")[0]
        path = f"{name}." if first.partition(".")[0] in model.model_fields else ""
        raise RivalsError(f"{path}{error}") from error


def leaves(model: type[Settings], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting of a model by its dotted name, nested ones last."""
    nested = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            nested.append((f"{prefix}{name}.", field.annotation))
        else:
            yield f"{prefix}{name}", field
    for path, inner in nested:
        yield from leaves(inner, path)


def find_path(key: str, paths: Sequence[str]) -> str:
    """The path that is `key`, or the only one that ends in it."""
    if key in paths:
        return key
    found = [path for path in paths if path.endswith(f".{key}")]
    if len(found) > 1:
        raise RivalsError(f"Several settings are named '{key}'; write {' or '.join(found)}.")
    if not found:
        raise _no_setting(key, paths)
    return found[0]


def _no_setting(name: str, paths: Sequence[str]) -> RivalsError:
    """The error for a name that no setting has, with its new name if it had one before."""
    new = FORMER_NAMES.get(name, "")
    if new in paths:
        return RivalsError(f"The setting '{name}' is now named {new}; use that name.")
    return unknown("setting", name, paths)


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b` in nested dictionaries."""
    *outer, last = path.split(".")
    for name in outer:
        values = values.setdefault(name, {})
    values[last] = value


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested dictionaries; the second wins."""
    result = dict(base)
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def _items(value: Any) -> Any:
    """`16-48-400`, `16,48,400`, `[16, 48, 400]`, `(16, 48, 400)` or one number as a list."""
    if isinstance(value, str):
        inside = value.strip().strip("[]()").strip()
        return [item.strip() for item in re.split(r",|(?<=\d)-", inside)] if inside else []
    return value if isinstance(value, list | tuple) else [value]


def _sentence(model: type[Settings], error: ValidationError) -> RivalsError:
    """The first thing that is wrong, in one sentence."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    name = ".".join(part for part in place if not part.isdigit())
    kind, given, context = first["type"], first["input"], first.get("ctx", {})
    if kind == "extra_forbidden":
        return _no_setting(place[-1], [path for path, _ in leaves(_owner(model, place))])
    if kind == "literal_error":
        words = [str(word) for word in get_args(_annotation(model, place))]
        shown = given if isinstance(given, int) else f"'{given}'"
        return RivalsError(f"{name} is {shown}; use {', '.join(words[:-1])} or {words[-1]}.")
    limits = {
        "greater_than": "must be more than {gt:g}",
        "greater_than_equal": "must be at least {ge:g}",
        "less_than": "must be below {lt:g}",
        "less_than_equal": "must be at most {le:g}",
        "finite_number": "must be finite",
    }
    if kind in limits:
        return RivalsError(f"{name} is {given}, but {limits[kind].format(**context)}.")
    hint = _annotation(model, place)
    hint = get_args(hint)[0] if get_origin(hint) is tuple else hint
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}
    if isinstance(given, Mapping) or hint not in (*names, str):
        return RivalsError(f"{name} must hold settings by name, but is '{given}'.")
    return RivalsError(f"{name} must be {names.get(hint, 'a word')}, but is '{given}'.")


def _owner(model: type[Settings], place: list[str]) -> type[Settings]:
    """The model that a nested name belongs to."""
    for part in place[:-1]:
        inner = model.model_fields[part].annotation
        assert isinstance(inner, type)
        model = inner
    return model


def _annotation(model: type[Settings], place: list[str]) -> Any:
    names = [part for part in place if not part.isdigit()]
    return _owner(model, names).model_fields[names[-1]].annotation
