"""A device that learns by itself: compiled, taught picture by picture, compared with Python.

What it answers, what it saves, and what is left when it forgets are the same in every bit.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import rivals
from machines import BOARD, build, need, qemu_arm
from rivals.ancestors.ancestor import shipped
from rivals.ancestors.feature_network import ancestor_graph, feature_network
from rivals.deploy.teachable.calibrated_body import FloatFeatures, calibrated_body
from rivals.deploy.teachable.compiled_features import CompiledFeatures
from rivals.deploy.teachable.dead_leaves import dead_leaves
from rivals.deploy.teachable.feature_layers import feature_steps, outputs_of
from rivals.deploy.teachable.integer_features import IntegerFeatures
from rivals.deploy.teachable.network_text import plain
from rivals.deploy.teachable.spoken_device import Line, say, ticks
from rivals.deploy.teachable.taught_state import TaughtState
from rivals.deploy.teachable.teachable_export import export_teachable
from rivals.deploy.teachable.teachable_source import of_ancestor, of_model, pictures_of
from rivals.edge.artefact_files import check_export
from rivals.errors import RivalsError
from taught_device import (
    SIDE,
    PythonDevice,
    accuracy,
    ids,
    lessons,
    pictures,
    questions,
)

SHAPE = (3, SIDE, SIDE)
FLASH, MEMORY = 256 * 1024, 128 * 1024  # of a microcontroller
HEAP = {"malloc", "calloc", "realloc", "free", "_malloc_r", "_free_r", "_sbrk", "sbrk"}
SANITISED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
TICK = 40  # instructions that SysTick counts as one under -icount shift=0


@pytest.fixture(scope="module")
def body():
    found = feature_network("tiny", SHAPE)
    within = shipped("tiny").within
    return calibrated_body("tiny", found.network, within, SHAPE, found.preparation)


@pytest.fixture(scope="module")
def whole(body):
    return IntegerFeatures(body)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The exported ancestor `tiny`. Only to be read."""
    need("cc")
    out = tmp_path_factory.mktemp("teachable") / "device"
    export_teachable(out, Path("."), "tiny")
    return out


@pytest.fixture
def copied(folder, tmp_path):
    """A copy, to build in."""
    return Path(shutil.copytree(folder, tmp_path / "device"))


# Features -----------------------------------------------------------------------------------------


def hard_pictures() -> torch.Tensor:
    """Photographs of nothing: digits, noise, black, white, one bright pixel in a corner."""
    noise = torch.randint(0, 256, (2, *SHAPE), generator=torch.Generator().manual_seed(0))
    corner = torch.zeros(1, *SHAPE)
    corner[0, :, 0, -1] = 255
    even = torch.stack([torch.full(SHAPE, level) for level in (0, 255)])
    return torch.cat([noise, corner, even, pictures(8, 2)]).to(torch.uint8)


def test_whole_features_are_the_same_in_c_in_every_bit(folder, whole) -> None:
    images = hard_pictures()
    found = whole(images)
    assert torch.equal(CompiledFeatures(folder, found.shape[1])(images), found)
    assert int(found.abs().max()) < 2**15
    assert len(torch.unique(found, dim=0)) == len(images)


def test_features_in_floating_point_are_those_of_python(folder, body) -> None:
    images = hard_pictures()
    found = CompiledFeatures(folder, 160, floating=True)(images)
    assert int((found - FloatFeatures(body)(images)).abs().max()) <= 1


def test_the_whitened_nearest_mean_is_the_discriminant_of_the_package(body) -> None:
    from rivals.naming.discriminant import ClassStatistics, covariance, head

    labels = torch.arange(10).repeat_interleave(5)
    learned = torch.cat([pictures(label, 5) for label in range(10)])
    asked = torch.cat([pictures(label, 3, 50) for label in range(10)])
    network = feature_network("tiny", SHAPE)
    rows = network.network(network.preparation(learned))
    weight, bias = head(
        ClassStatistics.of(rows, labels).means, covariance([], shipped("tiny").within)
    )
    wanted = (network.network(network.preparation(asked)) @ weight.T + bias).argmax(1)
    white, features = FloatFeatures(body)(learned), FloatFeatures(body)(asked)
    means = torch.stack([white[labels == label].double().mean(0) for label in range(10)])
    assert torch.equal(torch.cdist(features.double(), means).argmin(1), wanted)


def test_whole_numbers_cost_little_accuracy(body, whole) -> None:
    """On the bundled digits, which are not what the ancestor saw; results/teach has photographs."""
    floating = accuracy(FloatFeatures(body), range(10), 10, 20)
    assert floating > 40
    assert accuracy(whole, range(10), 10, 20) >= floating - 3


def test_pictures_to_calibrate_with_are_the_same_everywhere() -> None:
    assert zlib.crc32(dead_leaves(2, (3, 16, 16)).numpy().tobytes()) == 2435058202
    assert dead_leaves(1, (1, 8, 12), seed=3).shape == (1, 1, 8, 12)


def test_steps_are_the_network() -> None:
    images = torch.rand(2, *SHAPE) * 4 - 2
    for name in ("tiny", "small"):
        network = feature_network(name, SHAPE).network
        found = outputs_of(feature_steps(network, name), images.double())[-1].mean((2, 3))
        assert torch.allclose(found.float(), network(images), atol=1e-4)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.AdaptiveAvgPool2d(1), nn.Flatten()],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()],
        [nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)],
        [nn.Conv2d(3, 6, 3), nn.MaxPool2d(3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)],
        [nn.AdaptiveAvgPool2d(1)],
    ],
)
def test_other_networks_are_refused_in_a_sentence(layers) -> None:
    with pytest.raises(RivalsError, match=r"\A[^\n]*cannot be written in teachable C[^\n]*\Z"):
        feature_steps(torch.fx.symbolic_trace(nn.Sequential(*layers)), "mine")


def test_pooling_after_the_relu_is_the_same() -> None:
    layers = [nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    images = torch.randn(2, 3, 16, 16)
    steps = feature_steps(torch.fx.symbolic_trace(network), "mine")
    found = outputs_of(steps, images.double())[-1].mean((2, 3))
    assert [step.pool for step in steps] == [2, 1]
    assert torch.allclose(found.float(), network(images), atol=1e-5)


# A life of a device -------------------------------------------------------------------------------


STORY = [
    *lessons("even", (0, 2), 3), *lessons("odd", (1, 3), 3), Line(("save",)),
    *questions((0, 1, 2, 3), 2), *questions((2,), 1, "even"), *questions((2,), 1, "odd"),
    Line(("forget", "even")), Line(("save",)), *questions((0, 1, 3), 1),
]  # fmt: skip
NEVER = [*lessons("odd", (1, 3), 3), Line(("save",)), Line(("save",))]


def live(program, folder: Path, features, place: Path, kind: str = "int8") -> None:
    """Two tasks are learned and one is forgotten: answers and flash are those of Python."""
    python = PythonDevice(features, TaughtState(160))
    first, second = place / "first", place / "second"
    assert say(program, STORY, first) == python.say(STORY)
    assert say(program, NEVER, second)[-1] == "ok"
    network = ids(folder, kind)
    assert (first / "slot1.bin").read_bytes() == python.state.saved(network, 2)
    assert (first / "slot1.bin").read_bytes() == (second / "slot1.bin").read_bytes()
    again = [Line(("restore",)), Line(("info",)), *questions((3,), 1)]
    answers = say(program, again, first)
    assert answers[:3] == ["ok", "odd\tdigit 1\t3", "odd\tdigit 3\t3"]
    assert answers[3:] == python.say(again[2:])


def test_a_life_on_this_machine(copied, whole, tmp_path) -> None:
    folder = build(copied, "int8", CFLAGS=SANITISED)
    live([folder / "teach-int8"], folder, whole, tmp_path)


def test_a_life_in_floating_point(copied, body, tmp_path) -> None:
    """The state is exact here, too; features may differ by a bit from one machine to another."""
    folder = build(copied, CFLAGS="-O2")
    compiled = CompiledFeatures(folder, 160, floating=True)
    live([folder / "teach"], folder, compiled, tmp_path, "float")


@pytest.fixture(scope="module")
def small_device(folder, tmp_path_factory):
    """The example program, with room for two classes."""
    copy = shutil.copytree(folder, tmp_path_factory.mktemp("small") / "device")
    return [build(copy, "int8", CFLAGS="-O1 -DTEACH_CLASSES=2") / "teach-int8"]


def test_what_the_example_does_not_understand(small_device, tmp_path) -> None:
    picture = pictures(0, 1)[0]
    lines = [
        Line(("predict",), picture), Line(("sing",)), Line(("restore",)),
        Line(("learn", "a", "x" * 64), picture), Line(("learn", "a" * 400, "x"), picture),
        Line(("forget", "a")), Line(("predict",)),
    ]  # fmt: skip
    assert say(small_device, lines, tmp_path / "flash") == [
        "error: Nothing is learned yet; learn a class first.",
        "error: There is no command 'sing'.",
        "error: Nothing is saved here.",
        "error: A name has 1 to 63 bytes; use a shorter one.",
        "error: A name has 1 to 63 bytes; use a shorter one.",
        "error: There is no such task or class.",
        "error: The image does not have the size that the network looks at.",
    ]


def test_too_many_classes_and_a_full_flash_lose_nothing(small_device, tmp_path) -> None:
    """The second place of the flash is a device of the system that is always full."""
    place, picture = tmp_path / "flash", pictures(0, 1)[0]
    place.mkdir()
    (place / "slot1.bin").symlink_to("/dev/full")
    known = ["a\tx\t1", "b\tx\t1"]
    lines = [
        Line(("learn", "a", "x"), picture), Line(("save",)), Line(("learn", "b", "x"), picture),
        Line(("learn", "b", "y"), picture), Line(("save",)), Line(("info",)), Line(("restore",)),
        Line(("info",)),
    ]  # fmt: skip
    assert say(small_device, lines, place) == [
        "ok", "ok", "ok",
        "error: There is no room for another class; forget one, or supply a larger array.",
        "error: The flash did not keep what was written; the state before is still there.",
        *known, "ok", known[0],
    ]  # fmt: skip


def test_every_status_and_a_power_cut_at_every_byte(folder, tmp_path) -> None:
    harness = Path(__file__).parent / "fixtures" / "teach_harness.c"
    program = tmp_path / "harness"
    words = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", *SANITISED.split(), "-O2"]
    sources = [harness, folder / "teach.c", folder / "initial.c"]
    subprocess.run(["cc", *words, f"-I{folder}", *sources, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("flags", [["network_int8.c"], ["network_float.c", "-DTEACH_FLOAT"]])
def test_no_heap_and_few_foreign_names(flags, folder, tmp_path) -> None:
    need("cc", "nm", "ld")
    words = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wdouble-promotion", "-O2"]
    sources = ["teach.c", "features.c", "initial.c", *flags]
    subprocess.run(["cc", *words, "-r", *sources, "-o", tmp_path / "all.o"], check=True, cwd=folder)
    symbols = subprocess.run(
        ["nm", tmp_path / "all.o"], capture_output=True, text=True, check=True
    ).stdout
    outside = set(re.findall(r"^ +U (\w+)$", symbols, re.MULTILINE))
    assert outside <= {"memcpy", "memset", "memcmp", "lrintf", "fmaxf", "fminf", "strlen",
                       "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}  # fmt: skip
    ours = set(re.findall(r"^\w+ [A-Z] (\w+)$", symbols, re.MULTILINE))
    assert all(name.startswith(("teach_", "network_")) for name in ours)


def test_a_folder_is_checked_and_not_taken_for_a_ticket(copied, refused) -> None:
    told = check_export(copied)
    assert told[0].startswith("A device that learns, in C, of 2,7")
    assert "Python does not run" in refused("predict", "a.png", "--model", copied, "--run-native")
    (copied / "layers.h").write_text((copied / "layers.h").read_text() + "\n")
    with pytest.raises(RivalsError, match="was altered"):
        check_export(copied)
    (copied / "layers.h").unlink()
    with pytest.raises(RivalsError, match=r"holds no layers\.h"):
        check_export(copied)


# From a model -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A model with two tasks in closed form."""
    model = rivals.Model(tmp_path_factory.mktemp("taught") / "model")
    for name, labels in (("low", (0, 1)), ("high", (6, 7))):
        images = torch.cat([pictures(label, 12) for label in labels]).numpy()
        words = [f"digit {label}" for label in labels for _ in range(12)]
        model.learn((images, words), name, ancestor="tiny" if name == "low" else None, new=0.0)
    return model


def test_a_device_knows_what_its_model_knows(taught, tmp_path) -> None:
    need("cc")
    made = taught.export_teachable(tmp_path / "device")
    assert set(made.classes) == {
        ("low", "digit 0"), ("low", "digit 1"), ("high", "digit 6"), ("high", "digit 7")
    }  # fmt: skip
    folder = build(made.path, "int8")
    asked = [*questions((0, 1), 10, "low"), *questions((6, 7), 10, "high")]
    found = [line.split("\t")[1] for line in say([folder / "teach-int8"], asked, tmp_path / "a")]
    source = of_model(taught.path)
    wanted = PythonDevice(IntegerFeatures(source.body), source.state).say(asked)
    assert found == [line.split("\t")[1] for line in wanted]
    white = FloatFeatures(source.body)
    for each in source.state.classes:
        mean = white(pictures(int(each.name[-1]), 12)).double().mean(0)
        apart = torch.from_numpy(each.mean) - mean
        assert float(apart.abs().max()) < 16, "means are stored with 16 bits"
    told = say([folder / "teach-int8"], [Line(("info",)), Line(("forget", "low"))], tmp_path / "b")
    assert (told[0], told[-1]) == ("low\tdigit 0\t12", "ok")
    facts = json.loads((made.path / "card.json").read_text())
    assert facts["classes"] == [list(each) for each in made.classes]
    assert "digit 7 (high)" in (made.path / "README.md").read_text()


def test_the_command_line(taught, tmp_path, accepted, refused) -> None:
    need("cc")
    out = tmp_path / "device"
    words = ["export", "--to", "c", "--teachable"]
    told = accepted(*words, "--model", taught.path, out)
    assert "4 classes: digit 0 (low)" in " ".join(told.split())
    assert "bit for bit" in told
    assert "is for one ticket" in refused(*words, "--model", taught.path, "--task", "low", out)
    assert "use --to c --teachable" in refused("export", "--to", "onnx", "--teachable", out)
    assert "--to c --teachable" in refused("export", "--to", "c", "--ancestor", "tiny", out)
    assert "'tyni'" in refused(*words, "--ancestor", "tyni", out)
    assert "neither a model" in refused(*words, "--model", tmp_path, out)
    (tmp_path / "mine").mkdir()
    sentence = "is no artefact of rivals, so it is not replaced"
    assert sentence in refused(*words, "--ancestor", "tiny", tmp_path / "mine")


def test_a_model_without_ancestor_is_refused(tmp_path, refused) -> None:
    images = torch.cat([pictures(label, 4) for label in (0, 1)]).numpy()
    model = rivals.Model(tmp_path / "plain")
    model.learn((images, ["a"] * 4 + ["b"] * 4), "task", ancestor="none", epochs=1, size=16)
    told = refused("export", "--to", "c", "--teachable", "--model", model.path, tmp_path / "out")
    assert "has no ancestor" in told
    assert not (tmp_path / "out").exists()


def test_names_that_do_not_fit_are_refused(tmp_path) -> None:
    state = TaughtState(2)
    for name in ("", "ä" * 32, "a\0b"):
        with pytest.raises(RivalsError, match="a device keeps 1 to 63"):
            state.learn(np.zeros(2, np.int64), "task", name)
    assert not state.classes


def test_an_ancestor_without_covariance_is_refused(body) -> None:
    found = feature_network("tiny", SHAPE)
    with pytest.raises(RivalsError, match="brings no covariance"):
        calibrated_body("tiny", found.network, torch.ones(1), SHAPE, found.preparation)


def test_a_name_ends_no_comment() -> None:
    assert plain("mine */ int x; /*") == "mine ?? int x? ??"
    assert "*/" not in plain("\n??/*/")


def test_pictures_of_a_user_and_grey_ones_calibrate(tmp_path) -> None:
    (tmp_path / "some").mkdir()
    for number, each in enumerate(pictures(5, 3)):
        Image.fromarray(each.permute(1, 2, 0).numpy()).save(tmp_path / "some" / f"{number}.png")
    assert torch.equal(pictures_of(tmp_path, SHAPE), pictures(5, 3))
    found = of_ancestor("tiny", tmp_path)
    assert found.calibrated.startswith("pictures of ")
    with pytest.raises(RivalsError, match="holds no pictures"):
        pictures_of(tmp_path / "none", SHAPE)
    grey = ancestor_graph(shipped("tiny"), (1, SIDE, SIDE))
    images = pictures(5, 2)
    prepared = feature_network("tiny", SHAPE).preparation(images)
    wanted = ancestor_graph(shipped("tiny"), SHAPE)(prepared)
    assert torch.allclose(grey(prepared[:, :1]), wanted, atol=1e-2)


# Devices ------------------------------------------------------------------------------------------


@pytest.mark.device
def test_a_life_on_a_board_with_a_cortex_m4(copied, whole, tmp_path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm")
    folder = build(copied, "cortex-m4")
    live([*BOARD, folder / "teach-cortex-m4.elf"], folder, whole, tmp_path)


@pytest.mark.device
def test_a_life_on_a_cortex_m4_under_qemu_arm(copied, whole, tmp_path) -> None:
    """Without the instructions that multiply two pairs at once."""
    need("arm-none-eabi-gcc")
    folder = build(copied, "cortex-m4", CFLAGS="-O2 -DTEACH_PLAIN")
    live(qemu_arm(folder / "teach-cortex-m4.elf"), folder, whole, tmp_path)


@pytest.mark.device
def test_a_life_on_linux_on_aarch64(copied, tmp_path) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64")
    folder = build(copied, "aarch64")
    learned = [*lessons("odd", (1, 3), 3), *questions((1, 3), 3)]
    answers = say(["qemu-aarch64", folder / "teach-aarch64"], learned, tmp_path / "flash")
    assert [line.split("\t")[1] for line in answers[6:]] == ["digit 1"] * 3 + ["digit 3"] * 3


@pytest.mark.device
def test_learning_costs_what_an_answer_costs(copied, tmp_path, capsys) -> None:
    """Instructions under emulation, for qemu knows no cycles."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    folder = build(copied, "cortex-m4", CFLAGS="-O2 -DTEACH_TICKS")
    command = [*BOARD[:-1], "-icount", "shift=0", "-kernel", folder / "teach-cortex-m4.elf"]
    told = say(command, [*lessons("odd", (1, 3), 2), *questions((1, 3), 1)], tmp_path / "flash")
    learned, answered = (
        TICK * float(np.median(ticks(told, verb))) for verb in ("learn", "predict")
    )
    with capsys.disabled():
        print(f"\n{learned:,.0f} instructions a learned picture, {answered:,.0f} an answer")
    assert 1e6 < learned <= 1.2 * answered
    assert answered < 60e6


@pytest.mark.device
def test_fits_a_microcontroller(copied) -> None:
    need("arm-none-eabi-gcc", "arm-none-eabi-size", "arm-none-eabi-nm")
    folder = build(copied, "teach-m4-alone.elf")
    file = folder / "teach-m4-alone.elf"
    printed = subprocess.run(["arm-none-eabi-size", file], capture_output=True, text=True).stdout
    text, data, bss = (int(number) for number in printed.splitlines()[1].split()[:3])
    assert 117_760 < text + data <= FLASH
    assert 20 * 772 < data + bss <= MEMORY
    symbols = subprocess.run(["arm-none-eabi-nm", file], capture_output=True, text=True).stdout
    assert not HEAP & set(symbols.split())
    sizes = json.loads((folder / "card.json").read_text())["sizes"]
    assert sizes == {"flash": text + data, "ram": data + bss}
    assert f"{sizes['flash']:,}" in (folder / "README.md").read_text()


@pytest.mark.device
def test_rows_of_the_bench() -> None:
    from rivals.experiment.bench.bench_teachable import c_rows

    need("cc", "make", "arm-none-eabi-gcc", "qemu-system-arm")
    lessons = [
        (name, [f"digit {label}" for label in labels], torch.cat([pictures(n, 4) for n in labels]),
         torch.arange(2).repeat_interleave(4), torch.cat([pictures(n, 3, 100) for n in labels]),
         torch.arange(2).repeat_interleave(3))
        for name, labels in (("first", (0, 1)), ("second", (3, 6)))
    ]  # fmt: skip
    found = {row.name: row for row in c_rows(lessons)}
    assert found["edge-flash-c-int8"].met
    assert found["edge-memory-c-int8"].met
    assert found["edge-learn-per-answer-c-int8"].met
    for who in ("c-float", "c-int8"):
        assert found[f"edge-accuracy-after-1-{who}"].value >= 50
        assert found[f"edge-accuracy-after-2-{who}"].how.startswith("12 test pictures")
        assert 0 < found[f"edge-learn-seconds-{who}"].value < 60
