"""Tickets in C, for real: compiled with warnings as errors, run here and on emulated devices."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from machines import BOARD, build, need, qemu_arm, run
from rivals import edge
from rivals.deploy.export_format import Options, formats, write_card
from rivals.edge.artefact import softmax
from rivals.edge.artefact_files import check_export
from rivals.errors import RivalsError
from rivals.tickets.ticket import Ticket
from shipped import NETWORKS, shipped

HEAP = {"malloc", "calloc", "realloc", "free", "_malloc_r", "_free_r", "_sbrk", "sbrk"}
FLASH = 64 * 1024


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Exported folders by kind of network, written when first asked for. Only to be read."""
    pytest.importorskip("emx_onnx_cgen", reason="emx-onnx-cgen is not installed: rivals[c].")
    place = tmp_path_factory.mktemp("c")

    def folder(kind: str, raw: bool = True) -> Path:
        path = place / f"{kind}-{'raw' if raw else 'prepared'}"
        if not path.exists():
            formats["c"].write(shipped(kind)[0], path, Options(raw_input=raw))
        return path

    return folder


@pytest.fixture
def copied(folders, tmp_path):
    """A copy of an exported folder, to build in."""
    return lambda kind, raw=True: Path(shutil.copytree(folders(kind, raw), tmp_path / "ticket"))


def wanted(ticket: Ticket, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return ticket.network(ticket.preprocessing(images)).numpy()


def same(kind: str, printed, images: torch.Tensor) -> None:
    """What a program printed is what the ticket says: names, probabilities, scores."""
    ticket, _ = shipped(kind)
    names, sure, scores = printed
    right = wanted(ticket, images)
    assert np.abs(softmax(scores) - softmax(right)).max() <= 1e-5
    assert np.abs(scores - right).max() <= 1e-5 * max(1, np.abs(right).max())
    assert names == [ticket.classes[number] for number in right.argmax(1)]
    assert np.abs(sure - softmax(right).max(1)).max() <= 6e-5, "four digits are printed"


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_example_says_what_the_ticket_says(kind, copied) -> None:
    images = shipped(kind)[1].test.images
    need("cc")
    folder = build(copied(kind))
    same(kind, run([folder / "ticket"], images.numpy()), images)


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_runner_says_what_the_ticket_says(kind, folders) -> None:
    need("cc")
    ticket, lesson = shipped(kind)
    artefact = edge.load(folders(kind), run_native=True)
    images = lesson.test.images
    assert np.abs(softmax(artefact.scores(images.numpy())) - ticket(images).numpy()).max() <= 1e-5
    assert artefact.card.classes == (ticket.classes,)
    assert artefact.answers(images.numpy()[:1])[0].task == ticket.task


def test_prepared_images_are_taken_too(copied) -> None:
    need("cc")
    ticket, lesson = shipped("alexnet")
    images = lesson.test.images
    folder = build(copied("alexnet", raw=False))
    prepared = ticket.preprocessing(images).numpy()
    same("alexnet", run([folder / "ticket"], prepared), images)
    found = edge.load(folder, run_native=True).scores(images.numpy())
    assert np.abs(softmax(found) - ticket(images).numpy()).max() <= 1e-5


def test_memory_may_lie_on_the_stack(copied) -> None:
    need("cc", "size")
    images = shipped("resnet18")[1].test.images
    folder = build(copied("resnet18"), CFLAGS="-O1 -DTICKET_MEMORY=")
    same("resnet18", run([folder / "ticket"], images.numpy()), images)


@pytest.mark.parametrize("kind", NETWORKS)
def test_no_heap_and_no_foreign_names(kind, folders, tmp_path) -> None:
    need("cc", "nm")
    file = tmp_path / "ticket.o"
    words = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wdouble-promotion", "-O2"]
    subprocess.run(["cc", *words, "-c", folders(kind) / "ticket.c", "-o", file], check=True)
    symbols = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
    outside = set(re.findall(r"^ +U (\w+)$", symbols, re.MULTILINE))
    assert outside <= {"expf", "fmaxf", "memcpy", "memset", "_GLOBAL_OFFSET_TABLE_",
                       "__stack_chk_fail"}  # fmt: skip
    ours = set(re.findall(r"^\w+ [A-Z] (\w+)$", symbols, re.MULTILINE))
    assert ours == {"ticket_scores", "ticket_classify", "ticket_classes"}


def test_an_image_that_is_cut_short_is_noticed(copied) -> None:
    need("cc")
    folder = build(copied("lenet"))
    done = subprocess.run([folder / "ticket"], input=b"1" * 70, capture_output=True, text=False)
    assert done.returncode == 2
    assert done.stderr == b"The last image has 6 of 64 pixels.\n"
    done = subprocess.run([folder / "ticket", "nowhere"], capture_output=True)
    assert (done.returncode, done.stderr) == (2, b"nowhere cannot be read.\n")


# Devices ------------------------------------------------------------------------------------------


def for_cortex_m4(folder: Path) -> Path:
    need("arm-none-eabi-gcc")
    return build(folder, "cortex-m4") / "ticket-cortex-m4.elf"


@pytest.mark.device
@pytest.mark.parametrize("kind", ["lenet", "own", "alexnet"])
def test_on_a_board_with_a_cortex_m4(kind, copied) -> None:
    need("qemu-system-arm")
    images = shipped(kind)[1].test.images
    same(kind, run([*BOARD, for_cortex_m4(copied(kind))], images.numpy()), images)


@pytest.mark.device
def test_on_a_cortex_m4_under_qemu_arm(copied) -> None:
    images = shipped("lenet")[1].test.images
    same("lenet", run(qemu_arm(for_cortex_m4(copied("lenet"))), images.numpy()), images)


@pytest.mark.device
@pytest.mark.parametrize("kind", NETWORKS)
def test_on_linux_on_aarch64(kind, copied) -> None:
    need("aarch64-linux-gnu-gcc", "qemu-aarch64")
    images = shipped(kind)[1].test.images
    program = build(copied(kind), "aarch64") / "ticket-aarch64"
    same(kind, run(["qemu-aarch64", program], images.numpy()), images)


@pytest.mark.device
@pytest.mark.parametrize("kind", ["lenet", "own"])
def test_fits_a_small_microcontroller(kind, copied) -> None:
    """With its weights, and with what it calls of the library of C, which has no heap either."""
    need("arm-none-eabi-gcc", "arm-none-eabi-size", "arm-none-eabi-nm")
    folder = build(copied(kind), "ticket-m4-alone.elf")
    file = folder / "ticket-m4-alone.elf"
    printed = subprocess.run(["arm-none-eabi-size", file], capture_output=True, text=True).stdout
    text, data, bss = (int(number) for number in printed.splitlines()[1].split()[:3])
    weights = 4 * sum(p.numel() for p in shipped(kind)[0].network.parameters())
    assert weights < text + data <= FLASH
    assert data + bss < 8 * 1024
    symbols = subprocess.run(["arm-none-eabi-nm", file], capture_output=True, text=True).stdout
    assert not HEAP & set(symbols.split())
    sizes = json.loads((folder / "card.json").read_text())["sizes"]["cortex-m4"]
    assert sizes["flash"] == pytest.approx(text + data, abs=64)
    assert sizes["ram"] == data + bss
    assert 0 < sizes["stack"] < 2048
    assert f"{sizes['flash']:,}" in (folder / "README.md").read_text()


# What is refused ----------------------------------------------------------------------------------


def test_without_a_compiler(folders, monkeypatch) -> None:
    folder = folders("lenet")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    sentence = r"\A[^\n]*needs a C compiler, and none was found[^\n]*\Z"
    with pytest.raises(RivalsError, match=sentence):
        edge.load(folder, run_native=True)
    with pytest.raises(RivalsError, match=sentence):
        formats["c"].check_installed("c")


def test_sizes_are_left_out_without_a_compiler(folders, tmp_path, monkeypatch) -> None:
    from rivals.deploy.c.c_readme import readme
    from rivals.deploy.c.c_sizes import measure

    facts = json.loads((folders("lenet") / "card.json").read_text())
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    assert measure(folders("lenet")) == {}
    assert "no compiler at hand" in readme({**facts, "sizes": {}})


@pytest.mark.parametrize("damage", ["void ticket_scores(int", "", "#error no"])
def test_source_that_does_not_compile_is_refused(damage, copied) -> None:
    need("cc")
    folder = copied("lenet")
    (folder / "ticket.c").write_text(damage)
    seal(folder)
    with pytest.raises(RivalsError, match=r"\A[^\n]*ticket\.c[^\n]*export it again\.\Z"):
        edge.load(folder, run_native=True)


def seal(folder, **changes) -> None:
    """Let the checksum fit again, as somebody who changes files on purpose can."""
    facts = json.loads((folder / "card.json").read_text())
    others = [(folder / name).read_bytes() for name in ("ticket.c", "ticket.h")]
    write_card(folder / "card.json", {**facts, **changes}, *others)


@pytest.mark.parametrize("name", ["ticket.c", "ticket.h", "card.json"])
def test_altered_files_are_refused(name, copied) -> None:
    folder = copied("lenet")
    path = folder / name
    text = path.read_text()
    path.write_text(text.replace('"0"', '"1"', 1) if name != "ticket.h" else text + "\n")
    assert path.read_text() != text
    with pytest.raises(RivalsError, match="was altered: its checksum does not fit"):
        edge.load(folder, run_native=True)
    with pytest.raises(RivalsError, match="was altered: its checksum does not fit"):
        check_export(folder)


HARM = """
#include <stdio.h>
__attribute__((constructor)) static void harm(void) { fclose(fopen("%s", "w")); }
"""


def test_code_runs_only_when_it_is_allowed(copied, tmp_path, refused, accepted) -> None:
    need("cc")
    folder, mark = copied("lenet"), tmp_path / "mark"
    with (folder / "ticket.c").open("a") as file:
        file.write(HARM % mark)
    seal(folder)
    picture = tmp_path / "a.png"
    Image.new("L", (8, 8)).save(picture)
    words = ["predict", picture, "--model", folder]
    told = refused(*words)
    assert "compiles the C in that folder and runs it on this machine" in told
    assert "--run-native" in told
    with pytest.raises(RivalsError, match="run_native=True"):
        edge.load(folder)
    assert check_export(folder)[0].startswith("An export (C source) of ")
    assert not mark.exists()
    assert "%" in accepted(*words, "--run-native")
    assert mark.exists()


def test_a_model_is_a_model_whatever_else_lies_in_its_folder(copied, tmp_path, refused) -> None:
    """A card beside model.json, and a damaged model was run as C."""
    need("cc")
    folder, mark = copied("lenet"), tmp_path / "mark"
    with (folder / "ticket.c").open("a") as file:
        file.write(HARM % mark)
    seal(folder)
    picture = tmp_path / "a.png"
    Image.new("L", (8, 8)).save(picture)
    for name in ("model.json", "ticket.json", "config.yaml"):
        (folder / name).write_text("{}")
        refused("predict", picture, "--model", folder, "--run-native")
        if name == "model.json":
            with pytest.raises(RivalsError, match="is the folder of a model, not an export"):
                edge.load(folder, run_native=True)
        (folder / name).unlink()
    assert not mark.exists()


def test_links_in_the_folder_are_refused(copied, tmp_path) -> None:
    folder = copied("lenet")
    for name in ("ticket.c", "card.json"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
        with pytest.raises(RivalsError, match="it is a link"):
            edge.load(folder, run_native=True)
        (folder / name).unlink()
        (tmp_path / name).rename(folder / name)
    link = tmp_path / "link"
    link.symlink_to(folder)  # named by the user
    assert check_export(link)


def test_a_folder_without_source_is_refused(copied) -> None:
    folder = copied("lenet")
    (folder / "ticket.c").unlink()
    with pytest.raises(RivalsError, match=r"holds no ticket\.c"):
        edge.load(folder, run_native=True)
