"""A hook of mkdocs: files of the repository outside of docs/ are named on the site, not linked.

On a code host a link such as `[the grid](../benchmarks/tables.yaml)` opens the file. The site does
not contain these files, so there the link becomes `the grid (benchmarks/tables.yaml)`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([^)#\s]+)[^)\s]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the links of a page that lead out of docs/."""
    return OUTSIDE.sub(_named, markdown)


def _named(link: re.Match[str]) -> str:
    text, path = link[1], link[2].rstrip("/")
    if not (ROOT / path).exists():
        return link[0]  # mkdocs warns of it, and `make docs` fails
    return f"`{path}`" if text.strip("`").rstrip("/") == path else f"{text} (`{path}`)"
