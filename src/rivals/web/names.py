"""Names that people type become names of folders: any script, nothing that leaves the folder."""

from __future__ import annotations

import unicodedata

from rivals.errors import RivalsError

LONGEST = 60  # characters
BYTES = 200  # of a file name, which most systems hold to 255


def safe_name(text: str, what: str) -> str:
    """The name as it is stored, or one sentence about why it cannot be."""
    name = unicodedata.normalize("NFC", " ".join(text.split()))
    if not name:
        raise RivalsError(f"The {what} has no name; type one.")
    if len(name) > LONGEST or len(name.encode(errors="replace")) > BYTES:
        raise RivalsError(
            f"The name of the {what} has {len(name)} characters, and {LONGEST} short ones are "
            "the most; choose a shorter one."
        )
    if name.startswith(".") or any(each in '/\\:*?"<>|' for each in name):
        raise RivalsError(
            f"The {what} cannot be named '{name}': a name starts with no dot and has none of "
            '/ \\ : * ? " < > | in it; choose another one.'
        )
    if name.startswith("-") or any(unicodedata.category(each).startswith("C") for each in name):
        raise RivalsError(
            f"The name of the {what} starts with a dash or has characters in it that cannot be "
            "seen; choose another one."
        )
    return name
