"""A hook of mkdocs: the examples of docstrings, lines that start with `>>>`, are shown as code.

Markdown takes such a line for a quotation in a quotation in a quotation.
"""

from __future__ import annotations

from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

EARLY = 100  # before fences are read


class DoctestBlocks(Preprocessor):
    """Puts a fence around each example, which ends with an empty line."""

    def run(self, lines: list[str]) -> list[str]:
        found: list[str] = []
        inside = fenced = False
        for line in lines:
            fenced ^= line.lstrip().startswith("```")
            if not inside and not fenced and line.startswith(">>> "):
                found, inside = [*found, "", "```pycon"], True
            elif inside and not line.strip():
                found, inside = [*found, "```"], False
            found.append(line)
        return [*found, "```"] if inside else found


class DoctestExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(DoctestBlocks(md), "doctest-blocks", EARLY)


def on_config(config: Any) -> None:
    """Add the extension to those of the site."""
    config.markdown_extensions.append(DoctestExtension())
