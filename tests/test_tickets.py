"""Tickets: saved, loaded, recognised, refused, and kept where they belong."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from rivals.errors import RivalsError
from rivals.experiment.loop import Run
from rivals.experiment.results import Results
from rivals.experiment.run_folder import RunFolder
from rivals.experiment.run_settings import resolve
from rivals.experiment.start import prepare
from rivals.io.checksum import BLANK, has_checksum, with_checksum
from rivals.io.files import digest
from rivals.seeds import Seed
from rivals.streams.stream import Stream, StreamItem, streams
from rivals.tickets.ticket import Ticket, check_ticket
from toys import lessons, make, teach

NASTY = ["../x", "a/b", "a", ".", "..", "/etc", "a%2Fb", "a b", "x.y", "ä\n", "~", "-r"]


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of a ticket, away from the run that made it."""
    return Path(shutil.copytree(finished / "tickets" / "0-1-2-3-4", tmp_path / "ticket"))


def digits(seed: int = 0) -> Stream:
    return streams["digits"].build(resolve("digits", overrides={"tasks": 2}).stream, Seed(seed))


def edit(folder: Path, **changes: Any) -> None:
    """Change ticket.json with care: its checksum fits again, where it still has one."""
    facts = json.loads((folder / "ticket.json").read_text())
    write(folder, {**facts, **changes})


def write(folder: Path, facts: dict[str, Any]) -> None:
    text, weights = json.dumps(facts).encode(), (folder / "weights.safetensors").read_bytes()
    if has_checksum(text):
        text = with_checksum(text, weights)
    (folder / "ticket.json").write_bytes(text)


def test_a_ticket_runs_without_its_model(folder: Path, finished: Path) -> None:
    ticket = Ticket.load(folder)
    stream = streams["digits"].build(
        resolve("digits", overrides={"tasks": 2}).stream, Seed(0).child("stream")
    )
    test = stream[0].test
    probabilities = ticket(test.images)
    assert probabilities.shape == (len(test), 5)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(len(test)))
    right = int((probabilities.argmax(1) == test.labels).sum())
    results = json.loads((finished / "results.json").read_text())
    assert 100 * right / len(test) == results["matrix"][-1][0] == ticket.accuracy
    for module in ticket.network.modules():
        assert type(module).__module__.startswith("torch."), "nothing of ours is inside"


def test_saved_and_loaded_it_is_the_same(folder: Path, tmp_path: Path) -> None:
    ticket = Ticket.load(folder)
    ticket.save(tmp_path / "again")
    for file in ("ticket.json", "weights.safetensors", "README.md"):
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes()
    again = Ticket.load(tmp_path / "again")
    assert again.fingerprint() == ticket.fingerprint()
    for name in ("task", "classes", "preprocessing", "input_shape", "winners", "accuracy"):
        assert getattr(again, name) == getattr(ticket, name)
    images = digits()[0].test.images
    assert torch.equal(again(images), ticket(images))


def test_the_fingerprint_tells_weights_and_architectures_apart(
    folder: Path, finished: Path
) -> None:
    ticket, other = Ticket.load(folder), Ticket.load(finished / "tickets" / "5-6-7-8-9")
    mark = ticket.fingerprint()
    assert other.fingerprint() != mark
    weight = next(ticket.network.parameters())
    weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))  # the smallest change there is
    assert ticket.fingerprint() != mark
    ticket = Ticket.load(folder)
    assert ticket.fingerprint() == mark
    facts = json.loads((folder / "ticket.json").read_text())
    relu = next(node for node in facts["architecture"] if node["op"] == "relu")
    relu["op"] = "identity"
    edit(folder, architecture=facts["architecture"])
    assert Ticket.load(folder).fingerprint() != mark


@pytest.mark.parametrize("place", [0, 9, 100, -1])
def test_altered_weights_are_refused(place: int, folder: Path) -> None:
    data = bytearray((folder / "weights.safetensors").read_bytes())
    data[place] ^= 4
    (folder / "weights.safetensors").write_bytes(data)
    with pytest.raises(RivalsError, match="were altered: checksums differ"):
        Ticket.load(folder)


def test_truncated_and_missing_files_are_refused(folder: Path) -> None:
    weights, facts = folder / "weights.safetensors", folder / "ticket.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(RivalsError, match="were altered"):
        Ticket.load(folder)
    weights.unlink()
    with pytest.raises(RivalsError, match="has no readable weights"):
        Ticket.load(folder)
    weights.write_bytes(whole)
    facts.write_text(facts.read_text()[:-20])
    with pytest.raises(RivalsError, match="is damaged: it is not valid JSON"):
        Ticket.load(folder)
    facts.unlink()
    with pytest.raises(RivalsError, match=r"The ticket .* cannot be read \(No such file"):
        Ticket.load(folder)


@pytest.mark.parametrize("version", [3, 0, None, "1", 1.5, True])
def test_another_format_is_refused(version: object, folder: Path) -> None:
    edit(folder, format=version)
    with pytest.raises(RivalsError, match=f"has format {version}, and this version reads 1 and 2"):
        Ticket.load(folder)


def test_an_unknown_layer_is_refused(folder: Path) -> None:
    facts = json.loads((folder / "ticket.json").read_text())
    facts["architecture"][-2]["op"] = "os.system"
    edit(folder, architecture=facts["architecture"])
    with pytest.raises(
        RivalsError, match=r"has a layer 'os\.system' that this version does not know"
    ):
        Ticket.load(folder)


@pytest.mark.parametrize("key", ["task", "classes", "preprocessing", "architecture", "input_shape",
                                 "winners", "accuracy", "sha256"])  # fmt: skip
def test_a_missing_fact_is_refused(key: str, folder: Path) -> None:
    facts = json.loads((folder / "ticket.json").read_text())
    del facts[key]
    write(folder, facts)
    with pytest.raises(RivalsError, match="altered" if key == "sha256" else "damaged"):
        Ticket.load(folder)


@pytest.mark.parametrize("nonsense", [None, 7, "x", [], {}, [7], [{"name": "a"}]])
@pytest.mark.parametrize("key", ["architecture", "preprocessing", "sha256"])
def test_nonsense_is_refused_in_a_sentence(key: str, nonsense: object, folder: Path) -> None:
    edit(folder, **{key: nonsense})
    with pytest.raises(RivalsError, match=rf"\A[^\n]*{re.escape(str(folder))}[^\n]*\Z"):
        Ticket.load(folder)


def test_an_architecture_that_does_not_fit_its_weights_is_refused(folder: Path) -> None:
    facts = json.loads((folder / "ticket.json").read_text())
    linear = next(node for node in facts["architecture"] if node["op"] == "linear")
    linear.update(op="conv2d", stride=1, padding=0)
    edit(folder, architecture=facts["architecture"])
    with pytest.raises(RivalsError, match="damaged"):
        Ticket.load(folder)


# What comes from elsewhere ------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["task", "classes", "preprocessing", "input_shape", "architecture",
                                 "winners", "accuracy", "format"])  # fmt: skip
def test_every_fact_is_under_the_checksum(key: str, folder: Path) -> None:
    facts = json.loads((folder / "ticket.json").read_text())
    value = facts[key]
    facts[key] = {
        "task": "other", "preprocessing": {**facts["preprocessing"], "scale": 255.0}, "format": 1,
        "input_shape": [1, 4, 16], "accuracy": 99.9,
    }.get(key) or value[::-1]  # fmt: skip
    assert facts[key] != value
    (folder / "ticket.json").write_text(json.dumps(facts))
    with pytest.raises(RivalsError, match="were altered: checksums differ"):
        Ticket.load(folder)


def test_a_ticket_of_0_1_is_still_read(folder: Path) -> None:
    ticket = Ticket.load(folder)
    assert check_ticket(folder)[-1] == "The checksum over ticket.json and the weights fits."
    facts = json.loads((folder / "ticket.json").read_text())
    facts |= {"format": 1, "sha256": digest((folder / "weights.safetensors").read_bytes())}
    (folder / "ticket.json").write_text(json.dumps(facts))
    assert Ticket.load(folder).fingerprint() == ticket.fingerprint()
    assert "Only its weights have a checksum" in check_ticket(folder)[-1]


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "infinite accuracy": {"accuracy": float("inf")},
    "too few classes": {"classes": ["0", "1"]},
    "no classes": {"classes": []},
    "classes that are numbers": {"classes": [0, 1, 2, 3, 4]},
    "one text of classes": {"classes": "01234"},
    "a huge image": {"input_shape": [4096, 4096, 4096]},
    "an image of nothing": {"input_shape": [1, 0, 8]},
    "a scale of nothing": {"preprocessing": {"scale": 0, "mean": [0.5], "std": [0.5]}},
    "a negative deviation": {"preprocessing": {"scale": 1, "mean": [0.5], "std": [-0.5]}},
    "a scale of almost nothing": {"preprocessing": {"scale": 1e-200, "mean": [0], "std": [1e-200]}},
    "two means": {"preprocessing": {"scale": 1, "mean": [0.5, 0.5], "std": [0.5, 0.5]}},
    "winners in words": {"winners": [["x"]]},
    "a thousand layers": {"architecture": [{"name": "a", "op": "relu"}] * 3000},
    "one name twice": {"architecture": [{"name": "a", "op": "flatten"}] * 2},
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_facts_are_refused(change: dict[str, Any], folder: Path) -> None:
    edit(folder, **change)
    with pytest.raises(RivalsError, match=r"\A[^\n]*damaged[^\n]*\Z"):
        Ticket.load(folder)


def test_1e999_is_not_a_number(folder: Path) -> None:
    text = re.sub(r'"accuracy": [\d.]+', '"accuracy": 1e999', (folder / "ticket.json").read_text())
    write(folder, json.loads(text.replace("1e999", "7")))
    text = (folder / "ticket.json").read_text().replace('"accuracy": 7', '"accuracy": 1e999')
    data = (folder / "weights.safetensors").read_bytes()
    (folder / "ticket.json").write_bytes(with_checksum(text.encode(), data))
    with pytest.raises(RivalsError, match="a number is not finite"):
        Ticket.load(folder)


@pytest.fixture(scope="module")
def convolutional(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ticket with convolutions and pooling. Only to be copied."""
    lesson, place = lessons(1)[0], tmp_path_factory.mktemp("convolutional") / "ticket"
    method = make(network={"architecture": "lenet", "units": 4}, epochs=1)
    teach(method, lesson.task)
    known, task = method.known[lesson.task.name], lesson.task.name
    Ticket(method.ticket(task), task, known.classes, known.preprocessing, (1, 8, 8)).save(place)
    return place


@pytest.mark.parametrize(
    ("word", "change"),
    [("conv2d", {"padding": -1}), ("conv2d", {"padding": 10**9}), ("conv2d", {"stride": 0}),
     ("conv2d", {"stride": 10**12}), ("conv2d", {"padding": True}), ("conv2d", {"padding": "1"}),
     ("max_pool", {"kernel_size": 0}), ("max_pool", {"stride": -2}), ("max_pool", {"padding": 5}),
     ("max_pool", {"kernel_size": 100}), ("linear", {"from": []}),
     ("linear", {"from": ["images", "images"]})],
)  # fmt: skip
def test_layers_with_impossible_numbers(
    word: str, change: dict[str, Any], convolutional: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(convolutional, tmp_path / "ticket"))
    Ticket.load(folder)
    facts = json.loads((folder / "ticket.json").read_text())
    next(node for node in facts["architecture"] if node["op"] == word).update(change)
    edit(folder, architecture=facts["architecture"])
    with pytest.raises(RivalsError, match=r"\A[^\n]*damaged[^\n]*\Z"):
        Ticket.load(folder)


@pytest.mark.parametrize("change", [{}, {"cell": 0}, {"cell": 2.5}, {"cell": 9}, {"cell": 10**9}])
def test_gradients_with_impossible_cells(
    change: dict[str, Any], convolutional: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(convolutional, tmp_path / "ticket"))
    head = {"name": "head", "op": "linear"}
    edges, flat = {"name": "edges", "op": "gradients"}, {"name": "flat", "op": "flatten"}
    data = safetensors.torch.save({"head.weight": torch.ones(2, 8 * 7 * 7)})
    (folder / "weights.safetensors").write_bytes(data)
    edit(folder, architecture=[{**edges, "cell": 1}, flat, head])
    assert Ticket.load(folder)(torch.zeros(3, 1, 8, 8).byte()).shape == (3, 2)
    edit(folder, architecture=[{**edges, **change}, flat, head])
    with pytest.raises(RivalsError, match=r"\A[^\n]*damaged[^\n]*\Z"):
        Ticket.load(folder)
    edit(folder, architecture=[{**edges, "cell": 1}, flat, head], input_shape=[1, 2, 8])
    with pytest.raises(RivalsError, match="an image is too small for gradients"):
        Ticket.load(folder)


def test_nested_and_special_files_are_refused(folder: Path) -> None:
    facts, weights = folder / "ticket.json", folder / "weights.safetensors"
    kept, data = facts.read_bytes(), weights.read_bytes()
    for text in (b'{"format": ' + b"[" * 200_000, b'{"format":' + b"[" * 99 + b"]" * 99 + b"}"):
        facts.write_bytes(text)
        with pytest.raises(RivalsError, match="is damaged"):
            Ticket.load(folder)
    for path, whole in ((facts, kept), (weights, data)):
        path.unlink()
        path.symlink_to("/dev/zero")
        with pytest.raises(RivalsError, match="it is a link"):
            Ticket.load(folder)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(RivalsError, match="not a regular file"):
            Ticket.load(folder)
        path.unlink()
        path.write_bytes(whole)
    Ticket.load(folder)


def sealed(folder: Path, weights: bytes) -> None:
    """Put other weights into the folder, under a checksum that fits."""
    (folder / "weights.safetensors").write_bytes(weights)
    edit(folder)


def test_a_huge_header_of_weights_is_refused(folder: Path) -> None:
    """60 MB of names took 1.8 GB."""
    many = {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(30_000)}
    header = json.dumps(many).encode()
    sealed(folder, len(header).to_bytes(8, "little") + header)
    with pytest.raises(RivalsError, match="the header of the weights is too long"):
        Ticket.load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, folder: Path) -> None:
    tensors = safetensors.torch.load((folder / "weights.safetensors").read_bytes())
    next(iter(tensors.values())).view(-1)[0] = value
    sealed(folder, safetensors.torch.save(tensors))
    with pytest.raises(RivalsError, match="a weight is not finite"):
        Ticket.load(folder)


def test_scores_that_are_not_finite_are_no_class(folder: Path) -> None:
    ticket = Ticket.load(folder)
    ticket.network.get_submodule(_last(ticket)).bias[0] = float("nan")
    with pytest.raises(RivalsError, match="numbers that are not finite, which is no class"):
        ticket.predict(np.zeros((8, 8), np.uint8))
    method = teach(make(epochs=1), lessons(1)[0].task)
    predictor = method.predictor()
    predictor.tickets[0].get_submodule(_last(predictor)).bias.data[0] = float("inf")
    with pytest.raises(RivalsError, match="numbers that are not finite, which is no class"):
        predictor.predict(lessons(1)[0].test.images)


def _last(owner: Any) -> str:
    network = owner.network if isinstance(owner, Ticket) else owner.tickets[0]
    return [name for name, module in network.named_modules() if isinstance(module, nn.Linear)][-1]


def test_the_checksum_has_one_place() -> None:
    whole = with_checksum(b'{"sha256": "' + BLANK.encode() + b'"}', b"weights")
    assert has_checksum(whole)
    with pytest.raises(RivalsError, match="not one field"):
        with_checksum(whole + whole)
    with pytest.raises(RivalsError, match="not one field"):
        with_checksum(b"{}")


def test_no_name_leads_out_of_the_folder(
    folder: Path, tmp_path: Path, tree: Callable[[Path], dict[str, str]]
) -> None:
    run, ticket = RunFolder(tmp_path / "run"), Ticket.load(folder)
    before = tree(tmp_path)
    for name in NASTY:
        ticket.task = name
        ticket.save(run.ticket(name))
    inside = {path.name for path in (tmp_path / "run" / "tickets").iterdir()}
    assert len(inside) == len(NASTY), "two names share a folder"
    added = set(tree(tmp_path)) - set(before)
    assert all(name.split("/")[:2] in (["run"], ["run", "tickets"]) for name in added)
    assert all(len(Path(name).parts) <= 4 for name in added)
    for name in NASTY:
        assert Ticket.load(run.ticket(name)).task == name


class Renamed(Stream):
    """The digits, their tasks under other names."""

    def __init__(self, stream: Stream, names: list[str]) -> None:
        self.stream, self.names = stream, names
        self.name, self.input_shape = stream.name, stream.input_shape
        self.fingerprint = stream.fingerprint

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> StreamItem:
        lesson = self.stream[index]
        return StreamItem(dataclasses.replace(lesson.task, name=self.names[index]), lesson.test)


@pytest.mark.parametrize("method", ["twta", "independent"])
def test_a_run_over_tasks_with_nasty_names(
    method: str, tmp_path: Path, tree: Callable[[Path], dict[str, str]]
) -> None:
    changes = {
        "tasks": 5,
        "epochs": 1,
        "batch_size": 200,
        "architecture": "mlp",
        "widths": "8-8",
        "units": 2,
    }
    settings = resolve("digits", method, overrides=changes)
    plain = prepare(settings, tmp_path / "plain")
    plain.go()
    before = tree(tmp_path)
    model = prepare(settings, tmp_path / "out")
    results = Results.empty("digits", method, "default", 0, "")
    run = Run(
        Renamed(model.stream, NASTY[:5]), model.method, model.folder, results, model.seed,
        save_every=0,
    )  # fmt: skip
    run.go()
    added = set(tree(tmp_path)) - set(before)
    assert all(Path(name).parts[0] == "out" for name in added)
    assert len(list((tmp_path / "out" / "tickets").iterdir())) == 5
    assert [task["name"] for task in results.content["tasks"]] == NASTY[:5]
    restored = prepare(settings, tmp_path / "out", resume=True)
    assert list(restored.method.known) == NASTY[:5]
    for name in NASTY[:5]:
        images = model.stream[0].test.images
        before_stop, after = run.method.predict(images, name), restored.method.predict(images, name)
        assert torch.equal(before_stop.confidence, after.confidence)


def test_a_ticket_is_verified_against_its_masked_network() -> None:
    lesson = lessons(1)[0]
    method = teach(make(), lesson.task)
    known, task = method.known[lesson.task.name], lesson.task.name
    ticket = Ticket(method.ticket(task), task, known.classes, known.preprocessing, (1, 8, 8))
    masked = partial(method.masked_logits, task=task)
    assert ticket.verify(lesson.test.images, masked) <= 1e-5
    with torch.no_grad():
        next(ticket.network.parameters())[0] += 1
    with pytest.raises(RivalsError, match="differs from its network"):
        ticket.verify(lesson.test.images, masked)


RECORD: dict[str, Any] = {
    "bytes": 5000, "sizes": {"host": {"ram": 1000}},
    "parity": {"before": 90, "after": 80.0, "difference": 1e-7},
}  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [1, [], {}, {"parity": 1}, {**RECORD, "parity": {**RECORD["parity"], "after": "x"}},
     {**RECORD, "sizes": {"host": {"ram": "x"}}}, {**RECORD, "sizes": [1]},
     {**RECORD, "bytes": []}],
)  # fmt: skip
def test_a_record_of_exports_that_is_none_is_left_out(
    record: object, folder: Path, accepted: Callable[..., str]
) -> None:
    """It is beside the ticket, for people, and not under its checksum."""
    told = accepted("info", folder)
    (folder / "exports.json").write_text(json.dumps({"c": record, "onnx-int8": record}))
    assert accepted("info", folder) == told
    (folder / "exports.json").write_text(json.dumps({"c": RECORD}))
    assert "ram 1,000 bytes" in accepted("info", folder)
