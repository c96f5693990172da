"""The page speaks several languages: each has the same sentences, and none stands outside them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent / "src" / "rivals" / "web" / "page"
LANGUAGES = ("english.js", "german.js")
SOURCES = [path for path in sorted(PAGE.glob("*.js")) if path.name not in LANGUAGES]


def sentences(file: str) -> dict[str, Any]:
    body = (PAGE / file).read_text().partition("export default ")[2].rstrip("\n;")
    found: dict[str, Any] = json.loads(re.sub(r",\s*}$", "}", body))
    assert len(found) == body.count('\n  "')  # no key twice
    return found


def places(sentence: str | list[str]) -> list[set[str]]:
    """The words in braces of a sentence, of one and of many."""
    texts = sentence if isinstance(sentence, list) else [sentence]
    return [set(re.findall(r"\{(\w+)\}", text)) for text in texts]


@pytest.mark.parametrize("other", LANGUAGES[1:])
def test_languages_have_the_same_sentences(other: str) -> None:
    english, translated = sentences("english.js"), sentences(other)
    assert list(translated) == list(english)
    for key, sentence in english.items():
        assert places(translated[key]) == places(sentence), key
    same = [key for key, sentence in english.items() if translated[key] == sentence]
    assert len(same) < 0.1 * len(english), same


def test_every_sentence_is_said_and_no_other() -> None:
    english, page = sentences("english.js"), (PAGE / "index.html").read_text()
    text = page + "".join(path.read_text() for path in SOURCES)
    named = set(re.findall(r'\b(?:t|nodes)\("([^"]+)"', text))
    named |= set(re.findall(r'data-t(?:-label|-placeholder)?="([^"]+)"', page))
    assert named <= set(english)
    begun = set(re.findall(r"`([a-z]+\.)\$\{", text))  # `learner.${name}`
    for key in english:
        quoted = f'"{key}"' in text
        by_server = key.startswith("told.")
        assert quoted or by_server or any(map(key.startswith, begun)), f"nobody says {key}"


def test_the_server_says_what_is_translated() -> None:
    """Each sentence that the page knows by heart stands in the code of the server."""
    templates = []
    for folder in ("web", "io"):
        for path in sorted((PAGE.parent.parent / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
                words = [re.escape(text) if isinstance(text, str) else ".*" for text in texts]
                if sum(len(word) for word in words if word != ".*") > 15:
                    templates.append(re.compile("".join(words)))
    for key, sentence in sentences("english.js").items():
        if key.startswith("told."):
            assert isinstance(sentence, str)
            assert any(each.fullmatch(sentence) for each in templates), key


def test_no_sentence_is_outside_the_files() -> None:
    """Strings of the scripts are keys, names and selectors; the document has no words at all."""
    for path in SOURCES:
        code = re.sub(r"(?m)^\s*(//|\*|/\*).*$|\s// .*$", "", path.read_text())
        strings = re.findall(r'"([^"\n]*)"|`([^`]*)`|\'([^\'\n]*)\'', code)
        for text in (re.sub(r"\$\{.*?\}", "", "".join(each)) for each in strings):
            if path.name == "train.js" and text == "The model is as it was.":
                continue  # what the server says is looked for, not said
            assert not re.match(r"[A-Z][a-z]+( [a-z]+)*[ .:?]|[A-Z][a-z]+ [a-z]+", text), (
                path.name,
                text,
            )
            assert not re.search(r"[a-z]{2,} (the|of|a|to|is|in|and) ", text), (path.name, text)
    page = (PAGE / "index.html").read_text()
    body = re.sub(r"(?s)<noscript>.*?</noscript>", "", page.partition("<body")[2].partition(">")[2])
    assert re.findall(r">\s*([^<>\s][^<>]*)<", body) == ["rivals", "1", "2", "3"]
    assert not re.search(r'\s(?:aria-label|placeholder|title)="', body)
    assert 'content: "' not in re.sub(r'content: "[^\w]*"', "", (PAGE / "style.css").read_text())
