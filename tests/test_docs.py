"""The documents are true: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from rivals.learn.twta_settings import TWTASettings

from rivals.cli.main import app, main
from rivals.errors import RivalsError
from rivals.experiment.grid.grid_file import from_file, from_words
from rivals.experiment.run_settings import build, parse_overrides, resolve
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkSettings, networks
from rivals.streams.stream import streams

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES]
CARRIED_OUT = {  # commands before Python; what it takes
    "deploy": ("onnxruntime", "onnxscript"),
    "deploy-c": ("emx_onnx_cgen", "onnxscript"),
}
SMALL = ["--set", "epochs=1", "--set", "tasks=2"]  # what makes a command of a page quick


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of one language, each with the number of its first line."""
    text = page.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def commands(page: Path, program: str) -> list[list[str]]:
    """The shell commands of a page that start with `program`, without it."""
    lines = [line for _, block in blocks(page, "bash") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(program)]


def named(page: str) -> Path:
    return ROOT / "docs" / f"{page}.md"


def execute(page: Path) -> dict[str, Any]:
    """Run the Python of a page from top to bottom as one module; errors name the page's lines."""
    module = types.ModuleType(f"docs_{page.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for line, source in blocks(page, "python"):
        code = compile("\n" * line + source, str(page), "exec", dont_inherit=True)
        exec(code, module.__dict__)
    return module.__dict__


@pytest.fixture(autouse=True)
def a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working folder; what a page registers is forgotten with it."""
    monkeypatch.chdir(tmp_path)
    for registry in (methods, networks):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    before = set(sys.modules)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if name == "my_network" or name.startswith("docs_"):
            del sys.modules[name]


# What the Python of a page has found, beyond what the page itself asserts -------------------------


def the_literal_recipe_has_two_faults(found: dict[str, Any]) -> None:
    expected = [8 ** (-depth / 2) for depth in range(4)]
    assert found["glorot"] == pytest.approx(expected, rel=0.2)
    assert found["live"] == pytest.approx([1.0] * 4, rel=0.1)
    dice = math.log(8)
    table = found["table"]
    for name in ("paper", "fan repaired"):
        accuracy, before, after = table[name]
        assert accuracy < 70
        assert before == pytest.approx(after, abs=0.01) == pytest.approx(dice, abs=0.05)
    for name in ("competition settles", "both", "default, share=0.2"):
        accuracy, before, after = table[name]
        assert accuracy > 85
        assert after < before < dice / 2


def the_method_learns_and_resumes(found: dict[str, Any]) -> None:
    assert found["anchored"]["accuracy"]["task_known"] > 90
    assert found["anchored"]["bti"] < found["forgetful"]["bti"] - 5
    assert len(found["results"].content["tasks"]) == 5
    method = found["methods"]["anchor"]
    assert issubclass(method, found["Finetune"])
    source = blocks(named("writing-a-method"), "python")[0][1]
    assert len(source.splitlines()) < 100


def the_ticket_is_the_network(found: dict[str, Any]) -> None:
    assert found["summary"]["accuracy"]["task_known"] > 95
    assert found["by_hand_summary"]["accuracy"]["task_known"] > 95
    for other in ("masked", "ticket"):
        assert torch.allclose(found[other], found["winners"], atol=1e-5)
    assert found["stored"].task == "0-1"
    assert Path("runs/two-paths/tickets/8-9/weights.safetensors").exists()
    source = blocks(named("your-own-network"), "python")[0][1]
    assert sum(1 for line in source.splitlines() if line.strip()) <= 20


def the_artefacts_answer(found: dict[str, Any]) -> None:
    assert found["answer"].label == "4"
    assert found["answer"].confidence > 0.9
    assert found["label"] == "4"
    assert found["model"].classify("four.png").task == "4-5"
    assert found["right"] > 0.9
    for name in ("four.onnx", "four.ort", "four-int8.onnx", "digits.onnx", "own.onnx"):
        assert Path(name).exists(), name


def the_folder_of_c_compiles(found: dict[str, Any]) -> None:
    """The commands of the page that are not ours, one by one, where their compilers are."""
    page = named("deploy-c")
    ((_, program),) = blocks(page, "c")
    Path("own.c").write_text(program)
    done = []
    for line in (line for _, block in blocks(page, "bash") for line in block.splitlines()):
        tool = {"cortex-m4": "arm-none-eabi-gcc", "aarch64": "aarch64-linux-gnu-gcc"}
        missing = shutil.which(tool.get(line.split()[-1], "cc")) is None
        if not line.startswith("rivals ") and not missing:
            done.append(line)
            subprocess.run(line, shell=True, check=True, capture_output=True, timeout=120)
    assert len(done) >= 4
    rows = [line.split("\t") for line in Path("answers.txt").read_text().splitlines()]
    assert [row[0] for row in rows] == [answer.label for answer in found["answers"]]
    for row, scores in zip(rows, found["scores"], strict=True):
        assert [float(number) for number in row[2:]] == pytest.approx(scores.tolist(), abs=1e-5)


def what_is_installed_was_made(found: dict[str, Any]) -> None:
    page = named("deploy-mobile")
    for name, file in (("litert", "four.tflite"), ("executorch", "four.pte")):
        ((_, source),) = blocks(page, f"python {name}")
        code = compile(source, str(page), "exec")  # at least it is Python
        assert Path(file).exists() == (file in found["made"])
        if file in found["made"]:
            scope: dict[str, Any] = {}
            exec(code, scope)
            assert scope["label"] in "45"


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "deploy": the_artefacts_answer,
    "deploy-c": the_folder_of_c_compiles,
    "deploy-mobile": what_is_installed_was_made,
    "paper": the_literal_recipe_has_two_faults,
    "writing-a-method": the_method_learns_and_resumes,
    "your-own-network": the_ticket_is_the_network,
}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_python_of_a_page_runs(page: Path) -> None:
    if page.stem in CARRIED_OUT:
        for module in CARRIED_OUT[page.stem]:
            pytest.importorskip(module, reason=f"{module} is not installed: rivals[export,c]")
        for words in commands(page, "rivals "):
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 0, words
    found = execute(page)
    CHECKS.get(page.stem, lambda _: None)(found)


def test_pages_with_checks_are_there() -> None:
    for name in (*CHECKS, "how-it-works"):
        assert blocks(named(name), "python"), name


# Commands -----------------------------------------------------------------------------------------


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command, parsed as the command line would and not carried out."""
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    parameters: dict[str, Any] = command.make_context("rivals", words).params
    return parameters


ALL_COMMANDS = [
    pytest.param(words, id=f"{page.stem}: {' '.join(words)}")
    for page in DOCUMENTS
    for words in commands(page, "rivals ")
]


@pytest.mark.parametrize("words", ALL_COMMANDS)
def test_commands_parse(words: list[str]) -> None:
    given = parsed(words)
    if words[0] == "run":
        changes = parse_overrides(list(given["set_"] or []))
        resolve(given["benchmark"], given["method"], given["preset"], given["seed"], changes)


def test_grids_of_a_page_are_valid(tmp_path: Path) -> None:
    grids = []
    for _, text in blocks(named("compare"), "yaml"):
        (tmp_path / "grid.yaml").write_text(text)
        grids.append(from_file(tmp_path / "grid.yaml"))
    assert [len(grid) for grid in grids] == [2 * 2 * 3 + 2 * 3 + 1, 2]
    assert len(grids[1][1].expect) == 3
    for words in commands(named("compare"), "rivals compare"):
        given = parsed(["compare", *words[1:]])
        if given["grid"] is None:
            preset = given["preset"] or "default"
            assert from_words(given["benchmarks"], given["methods"], given["seeds"], preset, [])


def test_a_wrong_command_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["run", "digits", "--presset", "paper"])


def test_commands_with_a_network_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    page = named("your-own-network")
    Path("my_network.py").write_text(blocks(page, "python")[0][1])
    lines = commands(page, "rivals ")
    assert len(lines) == 3
    for number, words in enumerate(lines):
        with pytest.raises(SystemExit) as ended:
            main([*words, *SMALL, "--out", f"run{number}"])
        assert ended.value.code == 0, capsys.readouterr().err
        assert Path(f"run{number}/results.json").exists()


def test_script_with_a_method_of_your_own() -> None:
    page = named("writing-a-method")
    Path("anchor.py").write_text(blocks(page, "python")[0][1])
    (words,) = commands(page, "python ")
    subprocess.run([sys.executable, *words, *SMALL], check=True, capture_output=True, timeout=120)
    config = Path("runs/anchor/config.yaml").read_text()
    assert "method: anchor" in config
    assert "strength: 3.0" in config


# Words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        path = (page.parent / target.partition("#")[0]).resolve()
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        assert path.is_relative_to(ROOT), f"{page.name} links out of the project: {target}"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_no_paths_of_a_machine(page: Path) -> None:
    found = re.findall(r"(?<![\w.])/(?:home|root|work|tmp|mnt|opt|Users)/\S*", page.read_text())
    found += re.findall(r"\b[A-Z]:\\\S*", page.read_text())
    assert not found


def test_every_question_of_the_paper_is_answered() -> None:
    letters = re.findall(r"^\| \*\*([A-Z]2?)\*\* ", named("paper").read_text(), re.MULTILINE)
    assert sorted(letters) == sorted([*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "D2"])


def test_files_named_in_the_paper_are_there() -> None:
    folders = "layers|networks|methods|tasks|runs|metrics|tickets"
    files = re.findall(rf"`((?:{folders})/\w+\.py)`", named("paper").read_text())
    assert len(files) > 20
    missing = [file for file in files if not (ROOT / "src" / "rivals" / file).exists()]
    assert not missing


def test_settings_named_in_the_paper_exist() -> None:
    """Each `key=value` is taken by the settings of TWTA, of networks or of some benchmark."""
    classes = [TWTASettings, NetworkSettings, *(streams[name].settings for name in streams)]
    pairs = re.findall(r"`(\w+)=([^`…]*)(?:…)?`", named("paper").read_text())
    assert len(pairs) > 20
    for key, value in pairs:
        takers = [cls for cls in classes if key in {f.name for f in dataclasses.fields(cls)}]
        assert takers, f"docs/paper.md names the setting {key}, which nobody has"
        beside = {"gating": "relaxed"} if key == "per_example" else {}
        if value:
            assert any(accepts(cls, {**beside, key: value}) for cls in takers), f"{key}={value}"


def accepts(cls: type[Any], values: dict[str, str]) -> bool:
    try:
        build(cls, values)
    except RivalsError:
        return False
    return True
