"""`rivals check` and `rivals sign`: whole or damaged, the history, and who signed it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from rivals.cli import check_command
from rivals.cli.main import main
from rivals.deploy.export_format import Options, card, write_card
from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.model import history, limits, task_file
from rivals.model.checking import check
from rivals.model.dropping import drop
from rivals.model.folder import ModelFolder
from rivals.model.history import ModelHistory
from rivals.model.manifest import checksum
from rivals.model.model import Model
from rivals.tickets.ticket import Ticket
from teaching import WORDS, folder, teach

Refused = Callable[..., str]
Accepted = Callable[..., str]
FORMAT_1 = Path(__file__).parent / "fixtures" / "model-format-1"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three tasks, and pictures of a fourth. Only to be copied."""
    place = tmp_path_factory.mktemp("taught")
    for name, classes in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5))):
        teach(folder(place / name, classes, 10), place / "model", epochs=1)
    folder(place / "d", (6, 7), 6)
    return place


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    shutil.copytree(taught / "model", tmp_path / "model")
    return tmp_path / "model"


def status(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as exit_:
        main([str(word) for word in words])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def said(path: Path, **options: Any) -> str:
    """What is damaged."""
    return " ".join(
        f"{p.part}: {p.said}" for p in check(path, **options).parts if p.state != "whole"
    )


def newest(model: Path) -> str:
    found = ModelFolder.open(model).description.history
    assert found is not None
    return found.newest


def rewrite(model: Path, change: Callable[[dict[str, torch.Tensor]], None], task: int = 0) -> None:
    """Change the tensors of a task, with all checksums to match."""
    described = json.loads((model / "model.json").read_text())
    entry = described["tasks"][task]
    tensors = safetensors.torch.load_file(model / "tasks" / entry["file"])
    change(tensors)
    (model / "tasks" / entry["file"]).unlink()
    file, sha256, data = task_file.encode(tensors)
    (model / "tasks" / file).write_bytes(data)
    entry |= {"file": file, "sha256": sha256, "bytes": len(data)}
    (model / "model.json").write_text(json.dumps({**described, "sha256": checksum(described)}))


# Whole or damaged --------------------------------------------------------------------------------


def test_a_whole_model(model: Path, accepted: Accepted) -> None:
    told = json.loads(accepted("check", model, "--json"))
    assert (told["kind"], told["whole"]) == ("model", True)
    parts = [part["part"] for part in told["parts"]]
    assert {"model.json", "file of 'a'", "ticket of 'c'", "history"} <= set(parts)
    assert "is whole" in accepted("check", model)


def test_a_long_table_is_shortened(
    model: Path, accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_command, "MOST_WHOLE", 3)
    printed = accepted("check", model)
    assert "7 more" in printed
    assert "ticket of" not in printed


def test_every_byte_of_a_model_counts(model: Path) -> None:
    for path in (model / "model.json", *sorted((model / "tasks").iterdir())):
        data = path.read_bytes()
        for place in (9, len(data) // 2, len(data) - 2):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            assert status("check", model) == 1
        path.write_bytes(data)
    assert status("check", model) == 0


def test_every_damaged_task_is_named(model: Path) -> None:
    for task in ModelFolder.open(model).tasks[1:]:
        (model / "tasks" / task.file).unlink()
    found = said(model)
    assert "the file of 'b' cannot be read" in found
    assert "the file of 'c' cannot be read" in found
    assert "'a'" not in found


def test_a_forged_ticket_is_noticed(model: Path) -> None:
    """Its checksums fit, but it is not what was learned."""
    rewrite(model, lambda tensors: tensors["head.bias"].add_(1))
    assert "The tickets of a are not those that were learned" in said(model)


def test_what_cannot_be_checked(tmp_path: Path, refused: Refused, model: Path) -> None:
    assert "There is no folder" in refused("check", tmp_path / "nothing")
    assert "holds neither" in refused("check", tmp_path)
    (tmp_path / "photo.jpg").write_bytes(b"1")
    assert "was expected" in refused("check", tmp_path / "photo.jpg")
    assert "a hash of the history was expected" in refused("check", model, "--since", "yesterday")


def test_other_files_are_notes(model: Path) -> None:
    (model / "notes.txt").write_text("mine")
    (model / "tasks" / "more").symlink_to("/etc")
    (model / "tasks" / f"{'0' * 16}.safetensors").write_bytes(b"left")
    report = check(model)
    assert report.whole
    assert "more, notes.txt" in said(model)
    assert f"{'0' * 16}.safetensors belong to no task" in said(model)


def test_a_model_of_version_0_1(tmp_path: Path) -> None:
    assert check(FORMAT_1).whole
    assert "it begins with the next lesson" in said(FORMAT_1)
    shutil.copytree(FORMAT_1, tmp_path / "model")
    drop(tmp_path / "model", "low")
    assert check(tmp_path / "model").whole
    assert check(tmp_path / "model", since=newest(tmp_path / "model")).whole


def test_a_run_and_its_tickets(finished: Path, tmp_path: Path) -> None:
    report = check(finished)
    assert report.whole
    said = [part.said for part in report.parts]
    assert "every ticket equals what is cut out of its masked network" in said
    ticket = next((finished / "tickets").iterdir())
    assert check(ticket).whole
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    ticket = next((run / "tickets").iterdir())
    other = safetensors.torch.load_file(ticket / "weights.safetensors")
    next(iter(other.values())).add_(1)
    safetensors.torch.save_file(other, ticket / "weights.safetensors")
    for path in (run, ticket):
        assert status("check", path) == 1


def test_an_export(exported: dict[str, Any], tmp_path: Path) -> None:
    source = Path(exported["ticket.onnx"]["path"])
    assert check(source).whole
    (tmp_path / "cut.onnx").write_bytes(source.read_bytes()[:1000])
    assert status("check", tmp_path / "cut.onnx") == 1
    program = tmp_path / "program"
    program.mkdir()
    (program / "card.json").write_text("{}")
    (program / "ticket.c").write_text("int main(void) { return 1; }")
    assert status("check", program) == 1
    assert sorted(path.name for path in program.iterdir()) == ["card.json", "ticket.c"]


@pytest.mark.parametrize("kind", ["ticket", "run"])
def test_a_card_beside_it_makes_no_export_of_a_folder(
    kind: str, finished: Path, tmp_path: Path
) -> None:
    """Otherwise a damaged run with a good C program in its folder would be called whole."""
    ticket = next((finished / "tickets").iterdir())
    folder = Path(shutil.copytree(finished if kind == "run" else ticket, tmp_path / "folder"))
    for name in ("ticket.c", "ticket.h"):
        (folder / name).write_bytes(b"")
    write_card(folder / "card.json", card(Ticket.load(ticket), Options()), b"", b"")
    assert check(folder).kind == kind
    described = folder / ("results.json" if kind == "run" else "ticket.json")
    described.write_text(described.read_text().replace('"classes"', '"others"', 1))
    assert status("check", folder) == 1


# History -----------------------------------------------------------------------------------------


def test_learning_on_changes_no_bit_of_earlier_tickets(taught: Path, model: Path) -> None:
    then = newest(model)
    assert then in json.dumps(info(model))
    Model(model).learn(taught / "d", epochs=1)
    drop(model, "b")
    report = check(model, since=then[:16])
    assert report.whole
    part = report.parts[[p.part for p in report.parts].index(f"since {then[:16]}")]
    assert part.said == "every bit is the same in a, c; refined: none; dropped: 1"


def info(model: Path) -> Any:
    from rivals.cli.info_command import model_facts

    return model_facts(model)["history"]


def test_a_refined_task_is_named(taught: Path, model: Path) -> None:
    then = newest(model)
    learned = Model(model).learn(taught / "a", again=True, epochs=1)
    assert learned.kept
    assert newest(model) != then
    assert "refined: a; dropped: 0" in " ".join(p.said for p in check(model, since=then).parts)


def test_a_changed_past_is_noticed(taught: Path, model: Path) -> None:
    """A ticket of that day is exchanged, and the line of its lesson with it."""
    then = newest(model)
    rewrite(model, lambda tensors: tensors["head.bias"].add_(1))
    described = json.loads((model / "model.json").read_text())
    described["history"][0] = f"learn {ModelFolder.open(model).mark('a')}"
    (model / "model.json").write_text(json.dumps({**described, "sha256": checksum(described)}))
    assert check(model).whole  # in itself it is
    assert "is not in the history" in said(model, since=then)
    assert status("check", model, "--since", then) == 1


def test_a_dropped_task_leaves_no_file_behind(model: Path) -> None:
    then, file = newest(model), ModelFolder.open(model).task("a").file
    kept = (model / "tasks" / file).read_bytes()
    drop(model, "a")
    assert check(model, since=then).whole
    (model / "tasks" / file).write_bytes(kept)
    assert status("check", model, "--since", then) == 1


def test_lines_that_do_not_follow_one_another(model: Path) -> None:
    described = json.loads((model / "model.json").read_text())
    for lines in (["drop 7"], ["learn " + "0" * 64], ["found " + "0" * 64, "after " + "0" * 64]):
        changed = {**described, "history": lines}
        (model / "model.json").write_text(json.dumps({**changed, "sha256": checksum(changed)}))
        with pytest.raises(RivalsError, match=r"the history in .* breaks off"):
            ModelFolder.open(model)


def test_a_history_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HISTORY", 20)
    found = ModelHistory()
    for number in range(100):
        found = found.add("learn", f"{number:064x}")
        if number > 2:
            found = found.add("drop", place=1)
        assert len(found.lines) <= 20
    assert list(found.now().marks.values()) == [f"{n:064x}" for n in (0, 98, 99)]
    assert max(map(len, found.lines)) <= 100
    longest = ModelHistory(("learn " + "0" * 64,) * 3)
    assert all(history.PATTERN.fullmatch(line) for line in (*found.lines, *longest.lines))


# Signatures --------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and its public one."""
    pytest.importorskip("cryptography", reason="cryptography is not installed: rivals[sign]")
    return tmp_path / "key", signatures.new_key(tmp_path / "key")


def test_a_signed_model(
    taught: Path, model: Path, tmp_path: Path, keys: tuple[Path, Path], accepted: Accepted,
    refused: Refused,
) -> None:  # fmt: skip
    private, public = keys
    picture = next((taught / "a" / "digit 0").iterdir())
    asked = ["predict", picture, "--model", model, "--require-signature", public]
    assert "is not signed" in refused(*asked)
    assert "Signed" in accepted("sign", model, "--key", private)
    assert "digit" in accepted(*asked)
    assert status("check", model, "--require-signature", public) == 0
    assert "digit" in accepted(*asked[:-2], "--trust", public)
    assert Model(model, require_signature=public).predict(picture).task == "a"
    other = signatures.new_key(tmp_path / "other")
    assert "signed with another key" in refused(*asked[:-1], other)
    assert "holds no public key" in refused(*asked[:-1], private)
    assert "holds no private key" in refused("sign", model, "--key", public)
    assert status("check", model, "--require-signature", other) == 1
    rewrite(model, lambda tensors: tensors["head.bias"].add_(1))
    assert "was changed after it was signed" in refused(*asked)
    with pytest.raises(RivalsError, match="was changed after it was signed"):
        Model(model, require_signature=public).tasks  # noqa: B018


def test_a_signature_covers_the_files_of_tasks(model: Path, keys: tuple[Path, Path]) -> None:
    signatures.sign(model, keys[0])
    signed = Model(model, require_signature=keys[1])
    path = model / "tasks" / signed.tasks[0].file
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(RivalsError, match="is damaged"):
        signed.check()


def test_learning_and_dropping_remove_the_signature(
    taught: Path, model: Path, keys: tuple[Path, Path], accepted: Accepted
) -> None:
    for words in (["learn", taught / "d", "--epochs", "1"], ["drop", "a"]):
        signatures.sign(model, keys[0])
        assert "The signature was removed" in accepted(*words, "--model", model)
        assert not (model / signatures.NAME).exists()
    assert "signature" not in accepted("drop", "b", "--model", model)


def test_a_refused_lesson_keeps_the_signature(
    taught: Path, model: Path, keys: tuple[Path, Path], refused: Refused
) -> None:
    signatures.sign(model, keys[0])
    refused("drop", "nobody", "--model", model)
    refused("learn", taught / "a", "--model", model, *WORDS)
    signatures.check(model, keys[1])


def test_a_signed_export(
    exported: dict[str, Any], tmp_path: Path, keys: tuple[Path, Path], accepted: Accepted,
    refused: Refused, taught: Path,
) -> None:  # fmt: skip
    out = tmp_path / "ticket.onnx"
    shutil.copy(exported["ticket.onnx"]["path"], out)
    picture = next((taught / "a" / "digit 0").iterdir())
    asked = ["predict", picture, "--model", out, "--require-signature", keys[1]]
    assert "is not signed" in refused(*asked)
    accepted("sign", out, "--key", keys[0])
    assert (tmp_path / "ticket.onnx.sig").exists()
    accepted(*asked)
    shutil.copy(exported["int8.onnx"]["path"], out)
    assert "was changed after it was signed" in refused(*asked)


@pytest.mark.parametrize("change", ["changed", "added", "removed"])
def test_a_signature_covers_every_file_of_a_folder(
    finished: Path, tmp_path: Path, keys: tuple[Path, Path], change: str
) -> None:
    ticket = tmp_path / "ticket"
    shutil.copytree(next((finished / "tickets").iterdir()), ticket)
    signatures.sign(ticket, keys[0])
    signatures.check(ticket, keys[1])
    (ticket / "exports.json").write_text("{}")  # a note that changes no answer
    signatures.check(ticket, keys[1])
    if change == "changed":
        facts = json.loads((ticket / "ticket.json").read_text())
        facts["classes"].reverse()  # every answer is another class
        (ticket / "ticket.json").write_text(json.dumps(facts))
    elif change == "added":
        (ticket / "model.onnx").write_text("more")
    else:
        (ticket / "weights.safetensors").unlink()
    with pytest.raises(RivalsError, match="was changed after it was signed"):
        signatures.check(ticket, keys[1])


def test_keys(tmp_path: Path, accepted: Accepted, refused: Refused, model: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed: rivals[sign]")
    told = json.loads(accepted("sign", "--new-key", tmp_path / "key", "--json"))
    assert told == {"private_key": str(tmp_path / "key"), "public_key": str(tmp_path / "key.pub")}
    assert os.name == "nt" or (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert "is there already" in refused("sign", "--new-key", tmp_path / "key")
    assert "needs PATH and --key" in refused("sign")
    assert "needs PATH and --key" in refused("sign", model)
    (tmp_path / "key").write_text("no key")
    assert "holds no private key" in refused("sign", model, "--key", tmp_path / "key")
    (model / "model.json").write_text("{}")
    assert "is damaged, so it was not signed" in refused("sign", model, "--key", tmp_path / "key")


@pytest.mark.parametrize("text", ["[]", "{}", '{"signature": 1}', '{"signature": "00"}', "{"])
def test_a_signature_that_is_none(model: Path, keys: tuple[Path, Path], text: str) -> None:
    (model / signatures.NAME).write_text(text)
    with pytest.raises(RivalsError, match=r"signed with another key|is damaged"):
        signatures.check(model, keys[1])
