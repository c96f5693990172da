"""A results file as it lies in a folder: read and checked without torch."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from rivals.errors import RivalsError
from rivals.io.files import read_json

FORMAT = 1


def read_results(path: Path) -> dict[str, Any]:
    """The content of a results file, checked against the schema."""
    content = read_json(path, "results file")
    check(content, path)
    return content


@cache
def schema() -> Any:
    return json.loads((resources.files("rivals.experiment") / "results.schema.json").read_text())


def check(content: dict[str, Any], path: Path) -> None:
    try:
        jsonschema.validate(content, schema())
    except jsonschema.ValidationError as error:
        where = "/".join(str(step) for step in error.absolute_path) or "the top"
        raise RivalsError(
            f"The results file {path} does not fit its schema at {where}: {error.message[:120]}."
        ) from error
