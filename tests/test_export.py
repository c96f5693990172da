"""Exports answer as their tickets do, or are not there: families, formats, bad input, no halves."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rivals import edge
from rivals.deploy.export_format import Format, Options, formats
from rivals.deploy.exported import export, export_whole
from rivals.deploy.parity import Parity, check, judge
from rivals.deploy.test_pictures import at_random, of_folder, of_stream_item
from rivals.deploy.ticket_source import TicketSource
from rivals.deploy.whole_model import whole
from rivals.errors import RivalsError
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.nn.network_plan import NetworkPlan, NetworkSettings, networks
from rivals.seeds import Seed
from rivals.streams.task import Preprocessing
from rivals.tickets.ticket import Ticket
from test_safety import as_nobody
from toys import lessons, make, teach

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")

Exports = dict[str, Any]
Refused = Callable[..., str]
Accepted = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]
TASK = "0-1-2-3-4"
YOUR_OWN = Path(__file__).parent.parent / "docs" / "your-own-network.md"


def cut(network: str, shape: tuple[int, int, int], **settings: Any) -> Ticket:
    """An untrained ticket of four classes."""
    plan = NetworkPlan(NetworkSettings(architecture=network, **settings), shape)
    native = plan.dense(Seed(3), "ticket")
    native.add("task", 4)
    channels = shape[0]
    prepare = Preprocessing(255.0, (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels])
    return Ticket(native.cut("task").eval(), "task", ("a", "b", "c", "d"), prepare, shape)


# The same answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "shape"),
    [("lenet", (1, 28, 28)), ("alexnet", (3, 32, 32)), ("resnet18", (3, 32, 32)),
     ("mlp", (1, 28, 28)), ("conv-small", (3, 20, 20)), ("two-paths", (1, 8, 8))],
)  # fmt: skip
def test_every_network_family(
    network: str, shape: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if network == "two-paths":  # a user's own, as the document has it
        monkeypatch.setattr(networks, "_entries", dict(networks._entries))
        source = re.search(r"```python\n(.*?)```", YOUR_OWN.read_text(), re.DOTALL)
        assert source
        exec(compile(source[1], str(YOUR_OWN), "exec", dont_inherit=True), {"__name__": "own"})
    ticket = cut(network, shape, units=8)
    made = export(TicketSource(ticket, at_random(ticket)), "onnx", tmp_path / "ticket.onnx")
    assert made.parity.difference < 1e-5
    assert made.parity.agreement == 1
    assert "random pictures" in made.parity.source
    weights = sum(tensor.nbytes for tensor in ticket.network.state_dict().values())
    assert made.bytes == (tmp_path / "ticket.onnx").stat().st_size < weights + 6000
    assert [path.name for path in tmp_path.iterdir()] == ["ticket.onnx"]


def test_what_the_formats_of_a_run_say(exported: Exports) -> None:
    for name, told in exported.items():
        parity = told["parity"]
        assert told["bytes"] == Path(told["path"]).stat().st_size
        assert parity["source"] == "test, validation and training images of the run"
        assert parity["images"] >= parity["held"] >= 170
        assert parity["before"] > 90, name
        if name == "int8.onnx":
            assert 1e-4 < parity["difference"] < 0.2
            assert parity["agreement"] >= 0.99
            assert abs(parity["before"] - parity["after"]) <= 1
        else:
            assert parity["difference"] < 1e-5
            assert parity["agreement"] == 1
            assert parity["before"] == parity["after"]
    assert exported["int8.onnx"]["bytes"] < 0.6 * exported["ticket.onnx"]["bytes"]
    assert exported["all.onnx"]["tasks"] == [TASK, "5-6-7-8-9"]


def test_the_file_is_plain(exported: Exports) -> None:
    import onnx

    for name, kind in (("ticket.onnx", onnx.TensorProto.UINT8), ("float.onnx", 1)):
        model = onnx.load(exported[name]["path"])
        onnx.checker.check_model(model, full_check=True)
        (images,), (scores,) = model.graph.input, model.graph.output
        assert (images.name, scores.name) == ("images", "scores")
        assert images.type.tensor_type.elem_type == kind
        assert images.type.tensor_type.shape.dim[0].dim_param, "any number of images"
        card = json.loads({entry.key: entry.value for entry in model.metadata_props}["rivals"])
        assert (card["task"], card["classes"]) == (TASK, list("01234"))
        stored = [tensor.raw_data for tensor in model.graph.initializer]
        assert len(stored) == len(set(stored)), "a weight is stored twice"
        text = Path(exported[name]["path"]).read_bytes()
        assert b'File "' not in text, "a path of this machine is inside"


@pytest.mark.parametrize(
    "rule",
    ["filters", "filters+judge", "confidence", "energy", "features", "pixels+confidence", "judge"],
)
def test_a_whole_model_by_its_rule(rule: str, tmp_path: Path) -> None:
    method = make(epochs=1, rule=rule)
    found = lessons(2)
    for lesson in found:
        teach(method, lesson.task)
    pictures = {lesson.task.name: of_stream_item(lesson) for lesson in found}
    made = export_whole(whole(method, (1, 8, 8), pictures), "onnx", tmp_path / "all.onnx")
    assert made.parity.agreement == 1
    assert made.parity.difference < 1e-5
    assert made.parity.before == made.parity.after
    model = edge.load(tmp_path / "all.onnx")
    images = torch.cat([lesson.test.images for lesson in found])
    task, label = model.decide(images.numpy())[:2]
    wanted = method.predict(images, None)
    assert (task == wanted.task.numpy()).mean() > 0.99  # but for tasks that score equally
    assert (label == wanted.label.numpy()).mean() > 0.99


def test_a_ticket_that_is_unsure_does_not_become_bytes(
    changes: list[str], tmp_path: Path, refused: Refused, tree: Tree
) -> None:
    """The ticket of a short run with one draw: for many images two classes are as good."""
    run = prepare(
        resolve("digits", overrides=parse_overrides([*changes, "competition.share=0"])),
        tmp_path / "run",
    )
    run.go()
    out = tmp_path / "out"
    out.mkdir()
    before = out / "old.onnx"
    before.write_text("of before")
    told = refused(
        "export", "--model", tmp_path / "run", "--task", TASK, "--to", "onnx-int8", before
    )
    assert "does not equal its ticket in 'onnx-int8': 9" in told
    assert "at least 99 % were expected" in told
    assert before.read_text() == "of before"
    assert list(tree(out)) == ["old.onnx"]


# Parity by hand -----------------------------------------------------------------------------------


def test_parity_by_hand() -> None:
    wanted = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], np.float32)
    found = np.array([[0.8, 0.2], [0.6, 0.4], [0.2, 0.8]], np.float32)
    parity = judge(wanted, found, np.array([0, 1]), "here")
    assert parity.difference == pytest.approx(0.2)
    assert parity.agreement == pytest.approx(2 / 3)
    assert (parity.images, parity.held, parity.before, parity.after) == (3, 2, 100, 50)
    assert judge(wanted, found, None, "here").before is None
    assert judge(wanted, found * np.nan, None, "here").difference == float("inf")


@pytest.mark.parametrize(
    ("parity", "sentence"),
    [
        (Parity(10, "w", 1e-6, 1.0), None),
        (Parity(10, "w", 1e-4, 1.0), "differs by 1.0e-04, at most 1e-05"),
        (Parity(10, "w", float("inf"), 1.0), "differs by inf"),
        (Parity(10, "w", 0.0, 0.9), "90.00 % of 10 images get the same class"),
        (Parity(999, "w", 0.0, 1.0, 200, 95.0, 94.0), None),
        (Parity(999, "w", 0.0, 1.0, 200, 95.0, 93.5), "falls from 95.0 to 93.5 %, at most 1 point"),
        (Parity(999, "w", 0.0, 1.0, 50, 96.0, 94.0), None),  # one image of fifty
    ],
)
def test_what_is_beyond_tolerance(parity: Parity, sentence: str | None) -> None:
    if sentence is None:
        check(parity, formats["onnx"], "onnx")
        return
    with pytest.raises(RivalsError, match=re.escape(sentence)):
        check(parity, formats["onnx"], "onnx")


class Wrong(Format):
    """A format that writes another ticket than it is given."""

    suffix, extra, modules = ".onnx", "export", ()

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        other = cut("mlp", ticket.input_shape, widths=(8, 8), units=2)
        formats["onnx"].write(other, path, options)


def test_a_wrong_artefact_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Tree
) -> None:
    monkeypatch.setitem(formats._entries, "wrong", Wrong())
    ticket = cut("mlp", (1, 8, 8), widths=(16, 16), units=2)
    with pytest.raises(RivalsError, match="does not equal its ticket in 'wrong'"):
        export(TicketSource(ticket, at_random(ticket)), "wrong", tmp_path / "ticket.onnx")
    assert tree(tmp_path) == {}


# Pictures of a folder -----------------------------------------------------------------------------


def test_a_folder_of_pictures(trained: Path, tmp_path: Path, accepted: Accepted) -> None:
    test = lessons(1, tasks=2)[0].test
    for number, (image, label) in enumerate(zip(test.images, test.labels, strict=True)):
        folder = tmp_path / "images" / str(int(label))
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.rint(image[0].numpy() * (255 / 16)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    (tmp_path / "images" / "0" / ".hidden").write_text("no picture")
    ticket = trained / "tickets" / TASK
    pictures = of_folder(tmp_path / "images", Ticket.load(ticket))
    assert pictures.labels is not None
    assert pictures.others is not None
    assert len(pictures.held) + len(pictures.others) == len(test)
    out = tmp_path / "ticket.onnx"
    words = ["export", "--model", ticket, "--images", tmp_path / "images", "--to", "onnx-int8", out]
    told = json.loads(accepted(*words, "--json"))["parity"]
    assert told["source"] == f"pictures of {tmp_path / 'images'}"
    assert (told["images"], told["held"]) == (len(test), len(pictures.held))
    assert told["before"] > 90
    shutil.copytree(tmp_path / "images" / "0", tmp_path / "flat")
    flat = of_folder(tmp_path / "flat", Ticket.load(ticket))
    assert flat.labels is None


def test_folders_that_do_not_fit(trained: Path, tmp_path: Path, refused: Refused) -> None:
    ticket = trained / "tickets" / TASK
    words = ["export", "--model", ticket, "--to", "onnx", tmp_path / "t.onnx", "--images"]
    assert "cannot be read (No such file" in refused(*words, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "fewer than two pictures" in refused(*words, tmp_path / "empty")
    (tmp_path / "odd" / "cat").mkdir(parents=True)
    told = refused(*words, tmp_path / "odd")
    assert f"has a subfolder 'cat', but the classes of '{TASK}' are 0, 1, 2, 3, 4" in told
    (tmp_path / "text").mkdir()
    for name in "ab":
        (tmp_path / "text" / name).write_text("no picture")
    assert "is not a picture that can be read" in refused(*words, tmp_path / "text")
    assert not (tmp_path / "t.onnx").exists()


# Bad input ----------------------------------------------------------------------------------------


def test_words_that_make_no_sense(
    trained: Path, tmp_path: Path, refused: Refused, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ticket = trained / "tickets" / TASK
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "file").write_text("x")
    before = tree(tmp_path)
    run = ["--model", trained]
    for words, sentence in [
        ([*run, "--task", TASK, "--to", "onx", "t.onnx"], "no format named 'onx'; did you mean on"),
        ([*run, "--task", "0-1", "--to", "onnx", "t.onnx"], f"it has {TASK}, 5-6-7-8-9."),
        ([*run, "--to", "onnx", "t.onnx"], f"choose one with --task ({TASK}, 5-6-7-8-9)"),
        ([*run, "--task", TASK, "--to", "onnx", "t.ort"], "does not end in .onnx"),
        ([*run, "--task", TASK, "--to", "onnx", "."], "does not end in .onnx"),
        ([*run, "--task", TASK, "--to", "onnx", "folder.onnx"], "is a folder"),
        ([*run, "--task", TASK, "--to", "onnx", "no/t.onnx"], "There is no folder no"),
        ([*run, "--task", TASK, "--to", "onnx", "file/t.onnx"], "There is no folder file"),
        ([*run, "--task", TASK, "--to", "onnx", "/proc/t.onnx"], "/proc/t.onnx"),
        ([*run, "--task", TASK, "--to", "onnx", "a" * 300 + ".onnx"], "File name too long"),
        ([*run, "--task", TASK, "--all-tasks", "--to", "onnx", "t.onnx"], "--task is for one"),
        ([*run, "--float-input", "--all-tasks", "--to", "onnx", "t.onnx"], "--float-input is for"),
        ([*run, "--all-tasks", "--to", "onnx-int8", "t.onnx"], "Only the formats onnx, ort and"),
        (["--model", ticket, "--all-tasks", "--to", "onnx", "t.onnx"], "holds one ticket"),
        (["--model", ticket, "--task", "x", "--to", "onnx", "t.onnx"], f"the ticket of '{TASK}'"),
        (["--model", ticket, "--to", "onnx-int8", "t.onnx"], "name a folder of them with --images"),
        (["--to", "onnx", "t.onnx"], ". holds neither a model, a run nor a ticket"),
        (["--model", "nowhere", "--to", "onnx", "t.onnx"], "no folder nowhere; make a model"),
        (["--model", "file", "--to", "onnx", "t.onnx"], "file is a file, but the folder of"),
        ([*run, "--task", TASK, "t.bin"], "The format of t.bin is not clear"),
        ([*run, "--task", TASK, "--to", "onnx"], "Missing argument"),
    ]:
        assert sentence in refused("export", *words), words
    assert tree(tmp_path) == before


def test_a_format_that_is_not_installed(
    trained: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Missing(Wrong):
        modules, extra = ("onnx", "a_runtime_that_nobody_has"), "export"

    monkeypatch.setitem(formats._entries, "missing", Missing())
    told = refused("export", "--model", trained, "--task", TASK, "--to", "missing", tmp_path / "a")
    assert "needs a_runtime_that_nobody_has, which is not installed" in told
    assert "pip install 'rivals[export]'" in told


def test_tickets_and_runs_that_were_altered(
    trained: Path, tmp_path: Path, refused: Refused
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    words = ["--to", "onnx", tmp_path / "t.onnx"]
    weights = run / "tickets" / TASK / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert "were altered" in refused("export", "--model", run, "--task", TASK, *words)
    assert "were altered" in refused("export", "--model", weights.parent, *words)
    part = next((run / "checkpoint").glob("*.safetensors"))
    part.write_bytes(b"x")
    assert "another checksum" in refused("export", "--model", run, "--all-tasks", *words)
    whole = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(whole.replace("fingerprint: sklearn", "fingerprint: other"))
    told = refused("export", "--model", run, "--task", "5-6-7-8-9", *words)
    assert "config.yaml is damaged: it has another checksum" in told
    config = whole.partition("\n")[2]  # without the checksum, as older versions wrote it
    (run / "config.yaml").write_text(config.replace("fingerprint: sklearn", "fingerprint: other"))
    told = refused("export", "--model", run, "--task", "5-6-7-8-9", *words)
    assert "learned from other data" in told
    (run / "config.yaml").write_text(config.replace("test_share", "tset_share"))
    refused("export", "--model", run, "--task", "5-6-7-8-9", *words)
    (run / "results.json").unlink()
    assert "No task of the run" in refused("export", "--model", run, "--all-tasks", *words)
    assert not (tmp_path / "t.onnx").exists()


def test_a_place_where_one_may_not_write(trained: Path, tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        shutil.copytree(trained / "tickets" / TASK, top / "ticket")
        for path in (top, *top.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = tree(top)
        words = ["export", "--model", top / "ticket", "--to", "onnx", top / "t.onnx"]
        status, told = as_nobody(*words)
        assert (status, told.count("\n")) == (2, 1), told
        assert "cannot be written to; choose another place" in told
        assert tree(top) == before
        top.chmod(0o755)
        (top / "ticket").chmod(0o755)


# No halves ----------------------------------------------------------------------------------------


def in_a_child(words: list[Any], before: Callable[[], None] = lambda: None) -> int:
    """Start an export in a process of its own, which has everything loaded; its number."""
    child = os.fork()
    if child == 0:
        from rivals.cli.main import main

        status = 1
        try:
            before()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            main([str(word) for word in words])
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        finally:
            os._exit(status)
    return child


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_killed_in_the_middle(
    sign: signal.Signals, exported: Exports, trained: Path, tmp_path: Path, accepted: Accepted
) -> None:
    out = tmp_path / "ticket.onnx"
    out.write_text("of before")
    words = ["export", "--model", trained / "tickets" / TASK, "--to", "onnx", out]
    child = in_a_child(words)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".*.part")) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(child, sign)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert out.read_text() == "of before"
    left = [path.name for path in tmp_path.iterdir() if path != out]
    if sign == signal.SIGTERM:
        assert (status, left) == (130, [])
    else:
        assert (status, left) == (-9, [f".ticket.onnx.{child}.part"])
    printed = accepted(*words)
    assert f"{out.stat().st_size:,}" in printed
    assert "100.00 %" in printed
    assert "Compared on random pictures, as no others are given (--images)." in printed
    assert [path.name for path in tmp_path.iterdir()] == ["ticket.onnx"], "and nothing is left"
    edge.load(out)


@pytest.mark.parametrize(("name", "limit"), [("t.onnx", 1000), ("t.ort", -500)])
def test_files_that_may_grow_no_further(
    name: str, limit: int, exported: Exports, trained: Path, tmp_path: Path
) -> None:
    """As on a full disk; the last one stops onnxruntime as it writes by itself."""
    room = limit if limit > 0 else exported["ticket.ort"]["bytes"] + limit
    words = ["export", "--model", trained / "tickets" / TASK, "--to", name[2:], tmp_path / name]
    child = in_a_child(words, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert list(tmp_path.iterdir()) == []
