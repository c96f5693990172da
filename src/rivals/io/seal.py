"""A checksum inside the file that it protects: of everything else that the file holds.

It finds damage and careless edits. It is no signature: who changes the content on purpose can
compute the checksum anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import digest

KEY = "sha256"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with its checksum, which comes first: a file that was cut short still has it."""
    rest = {key: value for key, value in content.items() if key != KEY}
    return {KEY: checksum(rest), **rest}


def unsealed(content: Mapping[str, Any], name: str, required: bool = False) -> dict[str, Any]:
    """`content` without its checksum, which must fit; `name` begins the error message.

    Files of older versions have none, and are accepted unless it is `required`.
    """
    rest = {key: value for key, value in content.items() if key != KEY}
    if (required or KEY in content) and content.get(KEY) != checksum(rest):
        raise RivalsError(
            f"{name} is damaged: it has another checksum than it says; bring back the original, "
            "or make it anew."
        )
    return rest


def checksum(content: Mapping[str, Any]) -> str:
    """The same before writing and after reading, as JSON or as YAML."""
    return digest(json.dumps(content, default=str).encode())
