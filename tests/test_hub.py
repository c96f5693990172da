"""Models and tickets on the Hub, against a server on this machine that speaks its API."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import rivals
from hub_server import TOKEN, LocalHub
from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.io.hub_card import header
from rivals.model.manifest import checksum
from rivals.model.model_card import PICTURE, model_card
from rivals.model.testing import report
from teaching import folder, marks, teach

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: rivals[hub]")


@pytest.fixture(autouse=True)
def no_token_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks, and pictures. Only to be read."""
    place = tmp_path_factory.mktemp("hub")
    for name, classes in (("a", (0, 1)), ("b", (2, 3))):
        teach(folder(place / name, classes, 8), place / "model", epochs=1)
    return place / "model"


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    found = LocalHub(tmp_path_factory.mktemp("hub") / "storage")
    yield found
    found.close()


@pytest.fixture
def pushed(hub: LocalHub, taught: Path) -> LocalHub:
    """A hub with that model as ann/parts."""
    rivals.Model(taught).push_to_hub("ann/parts", token=TOKEN, endpoint=hub.address)
    return hub


def pull(hub: LocalHub, place: Path, name: str = "ann/parts", **options: Any) -> rivals.Model:
    return rivals.Model.from_pretrained(name, place, endpoint=hub.address, **options)


def test_a_model_goes_there_and_comes_back(
    pushed: LocalHub, taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    model = rivals.Model.from_pretrained("ann/parts", endpoint=pushed.address)
    assert capfd.readouterr() == ("", "")  # no bars, no log
    assert model.path == Path("parts")
    assert marks(Path("parts")) == marks(taught)
    assert sorted(os.listdir("parts")) == ["model.json", "tasks"]
    assert model.predict(np.zeros((8, 8), np.uint8)).task in ("a", "b")
    with pytest.raises(RivalsError, match="is there already"):
        rivals.Model.from_pretrained("ann/parts", endpoint=pushed.address)


def test_the_card(hub: LocalHub, taught: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: rivals[report]")
    model = rivals.Model(taught)
    found = model.test(taught.parent / "a", task="a")
    address = model.push_to_hub(
        "ann/parts", report=found, license="mit", token=TOKEN, endpoint=hub.address
    )
    assert address.startswith(f"{hub.address}/ann/parts/commit/")
    files = hub.files("ann/parts")
    card = files["README.md"].decode()
    facts = yaml.safe_load(card.split("---")[1])
    assert facts["license"] == "mit"
    assert facts["library_name"] == "rivals"
    low, high = found.interval
    for words in ("digit 0, digit 1", "± ", f"{low:.1f} to {high:.1f}", "from random weights",
                  f"**{found.accuracy:.1f} %**", f"]({PICTURE})", f"{model.tasks[0].bytes:,}",
                  "Model.from_pretrained('ann/parts')"):  # fmt: skip
        assert words in card
    assert files[PICTURE].startswith(b"\x89PNG")
    model.push_to_hub("ann/parts", token=TOKEN, endpoint=hub.address)  # without a report
    assert PICTURE not in hub.files("ann/parts")
    assert "Tested" not in hub.files("ann/parts")["README.md"].decode()
    assert "license" not in yaml.safe_load(header(None).split("---")[1])


def test_names_in_a_card_are_only_names(taught: Path) -> None:
    content = rivals.Model(taught).opened().description
    tasks = tuple(
        type(task)(**{**vars(task), "name": "<script>|", "classes": ("`x`", "[a](b)")})
        for task in content.tasks
    )
    card = model_card("ann/parts", type(content)(**{**vars(content), "tasks": tasks}), None, None)
    assert "<script>" not in card
    assert "[a](b)" not in card
    assert "&#60;script&#62;&#124;" in card


def test_what_was_dropped_goes_and_the_card_can_stay(
    pushed: LocalHub, taught: Path, tmp_path: Path
) -> None:
    shutil.copytree(taught, tmp_path / "model")
    model = rivals.Model(tmp_path / "model")
    dropped = f"tasks/{model.tasks[0].file}"
    model.drop("a")
    pushed.put("ann/parts", {"README.md": b"mine", "other.txt": b"mine, too"})
    model.push_to_hub("ann/parts", card=False, token=TOKEN, endpoint=pushed.address)
    files = pushed.files("ann/parts")
    assert dropped not in files
    assert (files["README.md"], files["other.txt"]) == (b"mine", b"mine, too")
    assert marks(pull(pushed, tmp_path / "back").path) == marks(tmp_path / "model")


def test_a_branch_and_a_commit(pushed: LocalHub, taught: Path, tmp_path: Path) -> None:
    shutil.copytree(taught, tmp_path / "model")
    model = rivals.Model(tmp_path / "model")
    first = pushed.repositories["ann/parts"].branches["main"]
    model.drop("a")
    options = {"token": TOKEN, "endpoint": pushed.address}
    model.push_to_hub("ann/parts", revision="small", **options)
    assert len(pull(pushed, tmp_path / "main").tasks) == 2
    assert len(pull(pushed, tmp_path / "small", revision="small").tasks) == 1
    assert len(pull(pushed, tmp_path / "first", revision=first).tasks) == 2


def test_a_private_model_needs_a_token(hub: LocalHub, taught: Path, tmp_path: Path) -> None:
    model = rivals.Model(taught)
    model.push_to_hub("ann/secret", private=True, token=TOKEN, endpoint=hub.address)
    with pytest.raises(RivalsError, match=r"no repository ann/secret .* or it is private"):
        pull(hub, tmp_path / "x", "ann/secret")
    assert len(pull(hub, tmp_path / "x", "ann/secret", token=TOKEN).tasks) == 2


def test_a_ticket_goes_there_and_comes_back(pushed: LocalHub, taught: Path, tmp_path: Path) -> None:
    ticket, options = rivals.Model(taught).ticket("a"), {"endpoint": pushed.address}
    ticket.push_to_hub("ann/a", license="cc-by-4.0", token=TOKEN, **options)
    found = rivals.Ticket.from_pretrained("ann/a", **options)
    assert found.fingerprint() == ticket.fingerprint()
    assert found.classes == ticket.classes
    card = pushed.files("ann/a")["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["license"] == "cc-by-4.0"
    assert "rivals.Ticket.from_pretrained('ann/a')" in card
    with pytest.raises(RivalsError, match=r"holds no ticket; of a model, take"):
        rivals.Ticket.from_pretrained("ann/parts", **options)
    with pytest.raises(RivalsError, match=r"holds a ticket; use rivals.Ticket"):
        pull(pushed, tmp_path / "x", "ann/a")
    weights = bytearray(pushed.files("ann/a")["weights.safetensors"])
    weights[-1] ^= 1
    pushed.put("ann/a", {"weights.safetensors": bytes(weights)})
    with pytest.raises(RivalsError, match="ticket ann/a were altered"):
        rivals.Ticket.from_pretrained("ann/a", **options)


# What comes down is hostile -----------------------------------------------------------------------


def refuse(hub: LocalHub, tmp_path: Path, match: str, **options: Any) -> None:
    (tmp_path / "room").mkdir(exist_ok=True)
    with pytest.raises(RivalsError, match=match) as error:
        pull(hub, tmp_path / "room" / "x", **options)
    assert "\n" not in str(error.value)
    assert ".part" not in str(error.value)
    assert os.listdir(tmp_path / "room") == []


def test_other_content_is_refused(pushed: LocalHub, tmp_path: Path) -> None:
    files = pushed.files("ann/parts")
    name = next(each for each in files if each.startswith("tasks/"))
    pushed.put("ann/parts", {name: bytes(len(files[name]))})
    refuse(pushed, tmp_path, r"The model ann/parts is damaged: the file of .* is not the one")
    pushed.put("ann/parts", {name: files[name], "model.json": files["model.json"] + b" {"})
    refuse(pushed, tmp_path, r"The model ann/parts is damaged: model.json is not valid JSON")
    pushed.put("ann/parts", {"model.json": b"[" * 10**6})
    refuse(pushed, tmp_path, r"The model ann/parts is damaged")


def test_a_path_that_leads_out_is_refused(pushed: LocalHub, tmp_path: Path) -> None:
    """A model.json that is whole and names files elsewhere: none of them is asked for."""
    described = json.loads(pushed.files("ann/parts")["model.json"])
    for path in ("../up", "../../../up", "/up", "..\\up", "up"):
        described["tasks"][0]["file"] = path
        described["sha256"] = checksum(described)
        raw = (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()
        pushed.put("ann/parts", {"model.json": raw, path: b"", f"tasks/{path}": b""})
        pushed.sent = 0
        refuse(pushed, tmp_path, r"The model ann/parts is damaged: (?!model.json has another)")
        assert pushed.sent == len(raw)
    assert not (tmp_path / "up").exists()


def test_more_than_was_stated_is_not_fetched(pushed: LocalHub, tmp_path: Path) -> None:
    files = pushed.files("ann/parts")
    name = next(each for each in sorted(files) if each.startswith("tasks/"))
    large = bytes(3 * 2**20)
    pushed.put("ann/parts", {name: large})
    refuse(pushed, tmp_path, r"has 3,145,728 bytes, but at most .* were expected")
    assert pushed.sent < 2 * len(files["model.json"]) + sum(map(len, files.values()))
    pushed.lies = {name: len(files[name]), f"/storage/{pushed.keep(large)}": len(files[name])}
    refuse(pushed, tmp_path, r"bytes, but at most .* were expected")  # the server lies


def test_only_what_is_named_is_fetched(pushed: LocalHub, tmp_path: Path) -> None:
    pushed.put("ann/parts", {"train.py": b"raise SystemExit", "tasks/../../up": b"", "../up": b""})
    model = pull(pushed, tmp_path / "room" / "x")
    assert sorted(os.listdir(model.path)) == ["model.json", "tasks"]
    assert os.listdir(tmp_path / "room") == ["x"]


def test_a_signature_is_asked_for(pushed: LocalHub, taught: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed: rivals[sign]")
    public = signatures.new_key(tmp_path / "my.key")
    refuse(pushed, tmp_path, "ann/parts is not signed", require_signature=public)
    shutil.copytree(taught, tmp_path / "model")
    signatures.sign(tmp_path / "model", tmp_path / "my.key")
    options = {"token": TOKEN, "endpoint": pushed.address}
    rivals.Model(tmp_path / "model").push_to_hub("ann/parts", **options)
    assert len(pull(pushed, tmp_path / "back", require_signature=public).tasks) == 2


# Errors in one sentence ---------------------------------------------------------------------------


def test_errors_of_the_hub(hub: LocalHub, taught: Path, tmp_path: Path) -> None:
    refuse(hub, tmp_path, "no repository ann/none .*check the name, or log in", name="ann/none")
    refuse(hub, tmp_path, "'a b/c' is no name of a repository; use user/name", name="a b/c")
    hub.put("ann/other", {"config.json": b"{}"})
    refuse(hub, tmp_path, "ann/other holds no model of rivals", name="ann/other")
    refuse(hub, tmp_path, "has no revision 'v9'", name="ann/other", revision="v9")
    model = rivals.Model(taught)
    for token in (None, "wrong"):
        with pytest.raises(RivalsError, match=r"refused the token for ann/new \(401\)"):
            model.push_to_hub("ann/new", token=token, endpoint=hub.address)
    with pytest.raises(RivalsError, match="is no licence as the Hub names them"):
        model.push_to_hub("ann/new", license="Mine: all!", token=TOKEN, endpoint=hub.address)
    other = report(["cat"], ["cat"], "", None)
    with pytest.raises(RivalsError, match="about the class 'cat', which this model does not know"):
        model.push_to_hub("ann/new", report=other, token=TOKEN, endpoint=hub.address)
    with pytest.raises(RivalsError, match="no model"):
        rivals.Model(tmp_path / "no").push_to_hub("ann/new", endpoint=hub.address)
    assert "ann/new" not in hub.repositories
    hub.broken = True
    refuse(hub, tmp_path, "answered 500 about ann/other", name="ann/other")


def test_no_network(tmp_path: Path) -> None:
    gone = LocalHub(tmp_path / "storage")
    gone.close()
    with pytest.raises(RivalsError, match="could not be reached for ann/parts") as error:
        pull(gone, tmp_path / "x")
    assert "\n" not in str(error.value)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(RivalsError, match=r"pip install 'rivals\[hub\]'"):
        rivals.Model.from_pretrained("ann/parts", tmp_path / "x")
