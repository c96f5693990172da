"""results.json and runs kept as one JSON file: read, checked and written without torch."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from rivals.errors import RivalsError
from rivals.io.files import write_bytes
from rivals.io.reading import read_json
from rivals.io.seal import sealed, unsealed

FORMAT = 1
MOST_UNITS = 1_000_000  # of a block
LARGEST = 64 * 2**20  # bytes; a run of a thousand tasks has 10 MB


def read_results(path: Path) -> dict[str, Any]:
    """The content of a results file, checked against its checksum and the schema."""
    content = unsealed(read_json(path, "results file", LARGEST), f"The results file {path}")
    check(content, path)
    return content


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Check the content and write it with one line for each task and each row of the matrix."""
    check(content, path)
    entries = [f"{_json(key)}: {_lines(value)}" for key, value in sealed(content).items()]
    write_bytes(path, ("{\n" + ",\n".join(entries) + "\n}\n").encode())


def _lines(value: Any) -> str:
    """A list has one line for each item; everything else stays on one line."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_json(item) for item in value) + "\n]"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@cache
def schema() -> Any:
    return json.loads((resources.files("rivals.experiment") / "results.schema.json").read_text())


@cache
def validator() -> Any:
    """Made once: to check the schema itself takes longer than to check a file with it."""
    made = jsonschema.validators.validator_for(schema())
    made.check_schema(schema())
    return made(schema())


def check(content: dict[str, Any], path: Path) -> None:
    """Refuse content that does not fit the schema."""
    error = jsonschema.exceptions.best_match(validator().iter_errors(content))
    if error is not None:
        where = "/".join(str(step) for step in error.absolute_path) or "the top"
        raise RivalsError(
            f"The results file {path} does not fit its schema at {where}: {error.message[:120]}."
        ) from error
    # Long lists are checked here: the schema would take 20 µs a number, and there are tasks².
    if not all(_is_percent(value) for row in content["matrix"] for value in row):
        raise RivalsError(
            f"The results file {path} is damaged: its matrix must hold numbers from 0 to 100."
        )
    tasks, rows = content["tasks"], [len(row) for row in content["matrix"]]
    if rows != [*range(1, len(tasks) + 1)]:
        raise RivalsError(
            f"The results file {path} is damaged: its matrix must have one row for each task."
        )
    if (tasks or content["complete"]) and not (tasks and content["summary"]):
        raise RivalsError(f"The results file {path} is damaged: it has no tasks, or no summary.")
    for task in tasks:
        units = (unit for layer in task.get("winners", []) for unit in layer)
        if not all(type(unit) is int and 0 <= unit < MOST_UNITS for unit in units):
            raise RivalsError(
                f"The results file {path} is damaged: the winners of the task '{task['name']}' "
                "must be unit numbers."
            )


def _is_percent(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= 100
