"""What the cards of models and of tickets share: the header that the Hub reads, and safe names."""

from __future__ import annotations

import re
from typing import Any

from rivals.errors import RivalsError

TAGS = ["rivals", "continual-learning", "image-classification", "edge"]
LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,49}")
MARKS = re.compile(r"([\\`*_{}\[\]()#+!|~$<>&])")


def header(license: str | None) -> str:
    """The YAML header; a licence is named only if the user chose one."""
    import yaml  # here: a ticket is read without it

    facts: dict[str, Any] = {
        "library_name": "rivals", "pipeline_tag": "image-classification", "tags": TAGS,
    }  # fmt: skip
    if license is not None:
        if not LICENSE.fullmatch(license):
            raise RivalsError(
                f"'{license[:50]}' is no licence as the Hub names them; use a name such as "
                "apache-2.0, mit or cc-by-4.0."
            )
        facts["license"] = license
    return f"---\n{yaml.safe_dump(facts, sort_keys=False)}---\n"


def escaped(name: str) -> str:
    """A name as text of a card: nothing in it is taken for Markdown or HTML.

    >>> escaped("M6 | <b>zinc</b>")
    'M6 &#124; &#60;b&#62;zinc&#60;/b&#62;'
    """
    return MARKS.sub(lambda sign: f"&#{ord(sign[1])};", name)
