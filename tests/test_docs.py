"""The documents are true: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

import rivals
from rivals.cli.main import app, main
from rivals.edge.command import main as on_device
from rivals.errors import RivalsError
from rivals.experiment.grid.grid_file import from_file, from_words
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.learn.method import methods
from rivals.nn.network_plan import networks
from rivals.nn.selection import Masked
from rivals.registry import imports_allowed
from rivals.tickets.ticket import Ticket
from teaching import digit, folder, numbers

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
SMALL = ["--set", "epochs=1", "--set", "tasks=2"]  # makes a command of a page quick
RUN_FIRST = {  # pages whose commands are carried out before their Python, and what that takes
    "deploy": ("onnxruntime", "onnxscript"),
    "deploy-c": ("emx_onnx_cgen", "onnxscript"),
}
EXPORTS = {  # pages, and what they need
    **RUN_FIRST, "python": ("onnxruntime", "onnxscript"), "avalanche": ("avalanche",),
    "your-own-method": ("tensorboard",),
}  # fmt: skip


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of one language, each with the number of its first line."""
    text = page.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def commands(page: Path, program: str = "rivals ") -> list[list[str]]:
    """The commands of a page that start with `program`, without it: in blocks and in tables."""
    lines = [line for _, block in blocks(page, "bash") for line in block.splitlines()]
    lines += re.findall(r"^\|.*`(rivals \w+ [^`]+)` \|$", page.read_text(), re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(program)]


def named(page: str) -> Path:
    return ROOT / "docs" / f"{page}.md"


def save_modules(page: Path) -> None:
    """Write the modules that a page asks its reader to save."""
    found = re.findall(
        r"^Save this as `(\w+\.py)`:\n\n```python\n(.*?)^```",
        page.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    for name, source in found:
        Path(name).write_text(source)


def execute(page: Path) -> dict[str, Any]:
    """Run the Python of a page from top to bottom as one module; errors name the page's lines."""
    module = types.ModuleType(f"docs_{page.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for line, source in blocks(page, "python"):
        code = compile("\n" * line + source, str(page), "exec", dont_inherit=True)
        exec(code, module.__dict__)
    return module.__dict__


def carry_out(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0, words


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `rivals run digits --out runs/mine`, which several pages start with."""
    folder = tmp_path_factory.mktemp("digits") / "mine"
    carry_out(["run", "digits", "--out", str(folder)])
    return folder


DEVICE = shlex.split("export --to c --teachable --ancestor tiny device")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `rivals export --to c --teachable --ancestor tiny device`, of two pages."""
    folder = tmp_path_factory.mktemp("teachable") / "device"
    carry_out([*DEVICE[:-1], str(folder)])
    return folder


@pytest.fixture(autouse=True)
def a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working folder; what a page registers or imports is forgotten with it."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    for registry in (methods, networks):
        for name in set(registry._entries) - set(registry._modules):
            del registry._entries[name]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.startswith("docs_") or file.startswith(str(tmp_path)):
            del sys.modules[name]


# What the Python of a page has found, beyond what the page itself asserts -------------------------


def the_method_learns_and_resumes(found: dict[str, Any]) -> None:
    anchored = found["whole"].content["summary"]
    assert anchored["accuracy"]["task_known"] > 90
    assert anchored["bytes"]["anchor"] > 0
    assert len(found["whole"].content["tasks"]) == 5
    finetune = prepare(resolve("digits", method="finetune"), Path("runs/finetune")).go()
    assert anchored["bti"] < finetune.content["summary"]["bti"] - 5
    assert found["anchored"].content["method"].endswith(":Anchor")
    for name in ("anchor", "twta"):
        assert list(Path("mine", name, "log", "tensorboard").glob("events.*"))
    source = blocks(named("your-own-method"), "python")[0][1]
    assert len(source.splitlines()) < 70


def the_ticket_is_the_network(found: dict[str, Any]) -> None:
    assert found["summary"]["accuracy"]["task_known"] > 95
    assert found["by_hand_summary"]["accuracy"]["task_known"] > 95
    for other in ("masked", "ticket"):
        assert torch.allclose(found[other], found["winners"], atol=1e-5)
    stored = Ticket.load(Path("runs/two-paths/tickets/0-1"))
    probabilities = stored(found["lesson"].test.images)
    assert torch.allclose(probabilities, torch.softmax(found["ticket"], 1), atol=1e-5)
    assert (probabilities.argmax(1) == found["lesson"].test.labels).float().mean() > 0.95
    assert Path("runs/two-paths/tickets/8-9/weights.safetensors").exists()
    by_hand, images, task = found["run"].method.network.eval(), found["images"], found["task"]
    with torch.no_grad():
        winners = by_hand(images, task)
        assert torch.allclose(by_hand(images, task, Masked(task)), winners, atol=1e-5)
        assert torch.allclose(by_hand.cut(task)(images), winners, atol=1e-5)
    source = blocks(named("your-own-network"), "python")[0][1]
    assert sum(1 for line in source.splitlines() if line.strip()) <= 20


def the_artefacts_answer(found: dict[str, Any]) -> None:
    edge = found["edge"]
    assert found["answer"].label == "4"
    assert found["answer"].confidence > 0.9
    assert found["label"] == "4"
    assert found["model"].classify("four.png").task == "4-5"
    names = [
        found["model"].card.classes[task][label]
        for task, label in zip(found["tasks"], found["labels"], strict=True)
    ]
    assert np.mean(np.array(names) == found["digits"].target[:100].astype(str)) > 0.9
    for name in ("four.onnx", "four.ort", "four-int8.onnx"):
        assert edge.load(name).classify("four.png").label == "4"
    assert Path("digits.onnx").exists()


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


def the_device_was_taught(found: dict[str, Any]) -> None:
    """All commands of the page, in their order, where their tools are."""
    page = named("teach-c")
    ((_, program),) = blocks(page, "c")
    Path("own.c").write_text(program)
    run_commands([line for _, text in blocks(page, "bash") for line in text.splitlines()])
    answers = Path("answers.txt").read_text().splitlines()
    assert answers[:25] == ["ok"] * 25
    names = [line.split("\t")[1] for line in answers[25:]]
    assert (
        np.mean([a == b for a, b in zip(names, ["one"] * 12 + ["three"] * 12, strict=True)]) > 0.9
    )
    later = Path("later.txt").read_text().splitlines()
    assert later == ["ok", *answers[25:], "ok", "desk\tthree\t12"]
    if shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc"):
        assert Path("board.txt").read_text().splitlines() == answers
    assert '{"desk", "one", 24,' in Path("desk-device/initial.c").read_text()


def a_device_is_taught() -> None:
    """Photos as the page has them, and the commands that come before its Python."""
    parts = {"screws": (0, 1), "more-screws": (0, 1), "nuts": (2, 3), "bolts": (4, 5)}
    for number, (name, classes) in enumerate(parts.items()):
        folder(Path("photos") / name, classes, 12, first=12 * number)
        folder(Path("photos/held-out"), classes if name == "nuts" else (), 5, first=100)
    digit(numbers(2)[120])[0].save("new.jpg")
    run_commands(lines_before_python(named("edge"), True))


def lines_before_python(page: Path, before: bool) -> list[str]:
    """The lines of the blocks of commands before the first of Python, or of those after it."""
    (first, _), *_ = blocks(page, "python")
    found = [text for line, text in blocks(page, "bash") if (line < first) == before]
    return [line for text in found for line in text.splitlines()]


def run_commands(lines: list[str]) -> None:
    """Of compilers and emulators those that are here."""
    for line in lines:
        words = shlex.split(line)
        tool = "arm-none-eabi-gcc" if "cortex-m4" in line else "cc"
        if words[0] == "rivals-edge":
            assert on_device(words[1:]) == 0, line
        elif "--ram" in words:  # of a process of its own
            command = [sys.executable, "-m", *words]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
        elif words[0] == "rivals":
            if words[1:] != DEVICE or not Path("device").exists():  # it was run for two pages
                carry_out(words[1:])
        elif words[0] == "pip":  # the wheel is built and installed by tests/test_edge_learning.py
            assert line == "pip install rivals-edge"
        elif shutil.which(words[0]) and shutil.which(tool):
            subprocess.run(line, shell=True, check=True, capture_output=True, timeout=120)


def the_device_answered(found: dict[str, Any]) -> None:
    assert (found["answer"].label, found["answer"].task) == ("digit 2", "nuts")
    assert found["lesson"].facts.accuracy > 70
    run_commands(lines_before_python(named("edge"), False))
    assert [task.name for task in found["model"].tasks] == ["screws"]
    made = Path("device/teach-cortex-m4.elf").exists()
    assert made == (shutil.which("arm-none-eabi-gcc") is not None)


def the_model_was_taught(found: dict[str, Any]) -> None:
    assert (found["answer"].label, found["answer"].task) == ("upright", "screws")
    assert found["report"].accuracy > 70
    assert [task.name for task in found["model"].tasks] == ["nuts", "bolts"]
    assert Path("nuts.onnx").exists()
    assert found["same"].classes == ("low", "high")
    assert len(found["results"].matrix) == 2


def the_words_are_spotted(found: dict[str, Any]) -> None:
    assert found["report"].accuracy > 90
    assert found["model"].predict("held-out/you/0.wav").label == "you"
    places = {name: [at for at, heard in found["heard"] if heard == name] for name in ("hi", "you")}
    for name, second in (("hi", 1), ("you", 3)):
        assert min(abs(at - second) for at in places[name]) < 0.25, places


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "deploy": the_artefacts_answer,
    "deploy-c": the_folder_of_c_compiles,
    "edge": the_device_answered,
    "python": the_model_was_taught,
    "sounds": the_words_are_spotted,
    "teach-c": the_device_was_taught,
    "your-own-method": the_method_learns_and_resumes,
    "your-own-network": the_ticket_is_the_network,
}


PREPARED: dict[str, Callable[[], None]] = {"edge": a_device_is_taught}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_python_of_a_page_runs(page: Path, request: pytest.FixtureRequest) -> None:
    for module in EXPORTS.get(page.stem, ()):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: rivals[export,c,avalanche,tensorboard]")
    if page.stem in RUN_FIRST:
        for words in commands(page):
            if words == ["run", "digits", "--out", "runs/mine"]:
                shutil.copytree(request.getfixturevalue("digits_run"), "runs/mine")
            else:
                carry_out(words)
    if page.stem in ("edge", "teach-c"):
        if shutil.which("cc") is None:
            pytest.skip("there is no C compiler here")
        shutil.copytree(request.getfixturevalue("device"), "device")
    PREPARED.get(page.stem, lambda: None)()
    found = execute(page)
    CHECKS.get(page.stem, lambda _: None)(found)


def test_pages_with_python_are_there() -> None:
    others = ("how-it-works", "competition", "memory", "compare", "your-own-data")
    for name in (*CHECKS, *others):
        assert blocks(named(name), "python"), name


# Commands -----------------------------------------------------------------------------------------


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command, parsed as the command line would and not carried out."""
    command, words = command_line(), list(words)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands") or not words, f"there is no verb {words[0]}"
    parameters: dict[str, Any] = command.make_context("rivals", words).params
    return parameters


ALL_COMMANDS = [
    pytest.param(page, words, id=f"{page.stem}: {' '.join(words)}")
    for page in DOCUMENTS
    for words in commands(page)
]


@pytest.mark.parametrize(("page", "words"), ALL_COMMANDS)
def test_commands_parse(page: Path, words: list[str]) -> None:
    given = parsed(words)
    if words[0] == "run":
        save_modules(page)
        changes = parse_overrides(list(given["set_"] or []))
        with imports_allowed([given["benchmark"], given["method"]]):
            resolve(given["benchmark"], given["method"], given["preset"], given["seed"], changes)


def test_every_verb_has_an_example() -> None:
    page = named("command-line")
    shown = {words[0] for words in commands(page)}
    assert shown >= set(command_line().commands)
    assert len(commands(page)) > 10  # the tables are read


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
    with pytest.raises(AssertionError, match="no verb train"):
        parsed(["train", "digits"])


def test_commands_with_a_network_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    page = named("your-own-network")
    save_modules(page)
    lines = commands(page)
    assert len(lines) == 3
    for number, words in enumerate(lines):
        carry_out([*words, *SMALL, "--out", f"run{number}"])
        assert Path(f"run{number}/results.json").exists(), capsys.readouterr().err


def test_commands_with_a_method_of_your_own() -> None:
    page = named("your-own-method")
    save_modules(page)
    for words in commands(page, "rivals run"):
        carry_out(["run", *words[1:], *SMALL])
    config = Path("runs/anchor/config.yaml").read_text()
    assert "method: anchor:Anchor" in config
    assert "strength: 3.0" in config


def test_the_literal_recipe_has_two_faults() -> None:
    """What docs/paper.md says of the recipe as printed, by the script that it names."""
    assert "benchmarks/literal_recipe.py" in named("paper").read_text()
    script = runpy.run_path(str(ROOT / "benchmarks" / "literal_recipe.py"))
    expected = [8 ** (-depth / 2) for depth in range(4)]
    assert script["signal_sizes"]("glorot") == pytest.approx(expected, rel=0.2)
    assert script["signal_sizes"]("active") == pytest.approx([1.0] * 4, rel=0.1)
    chance = float(np.log(8))  # the entropy of a uniform choice among eight units
    learned = {name: script["first_task"](*variant) for name, variant in script["VARIANTS"].items()}
    assert len(learned) == 5
    for name, (accuracy, before, after) in learned.items():
        if name in ("paper", "initial weights repaired"):
            assert accuracy < 70
            assert before == pytest.approx(after, abs=0.01) == pytest.approx(chance, abs=0.05)
        else:
            assert accuracy > 80
            assert after < (before if name == "default" else chance / 2)


def test_the_table_of_tiny_continual_is_that_of_its_results() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "tiny_continual.py"))
    with (ROOT / "results" / "tiny-continual" / "tiny-continual.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 4 * sum(len(tasks) + 1 for _, tasks in script["STREAMS"].values())
    assert "\n".join(script["table"](rows)) in named("tiny-continual").read_text()


# Words, links, shape ------------------------------------------------------------------------------


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


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    package = {path.name for path in (ROOT / "src" / "rivals").iterdir() if path.is_dir()}
    inside = re.findall(rf"`(?:src/rivals/)?((?:{'|'.join(package)})/[\w/]+\.\w+)`", text)
    outside = re.findall(r"\b(?:benchmarks|tests)/[\w/-]+\.(?:py|yaml|sh)\b", text)
    missing = [file for file in inside if not (ROOT / "src" / "rivals" / file).exists()]
    missing += [file for file in outside if not (ROOT / file).exists()]
    assert not missing
    if page.stem == "paper":
        assert len(inside) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_short(page: Path) -> None:
    """At most 170 lines, usually 120; tables of at most six columns and ten rows."""
    text = page.read_text()
    assert len(text.splitlines()) <= 170
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = table.splitlines()
        assert len(rows) - 2 <= 10, rows[0]
        assert rows[0].count("|") - 1 <= 6, rows[0]


def test_the_first_page_is_read_in_a_minute() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 600
    assert text.count("![") == 1, "one picture"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """As `make docs`: every page is in the navigation, every link and anchor leads somewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert len(list((tmp_path / "site").glob("*/index.html"))) == len(PAGES) - 1
    report = (tmp_path / "site" / "report" / "index.html").read_text()
    assert "<code>src/rivals/experiment/report/paper.yaml</code>" in report
    assert 'href="../src' not in report
    reference = (tmp_path / "site" / "api" / "index.html").read_text()
    for name in rivals.__all__:
        assert f'id="rivals.{name}"' in reference or f"<code>rivals.{name}</code>" in reference, (
            name
        )
    found = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text())["docs"]
    places = {each["location"] for each in found}
    assert {"share/#two-models-in-one", "api/#rivals.Model.join", "sounds/"} <= places
    assert "<blockquote>" not in reference, "examples are code"
    assert reference.count("&gt;&gt;&gt; </span>") > 100


def test_every_promise_names_tests_that_are_there() -> None:
    """In docs/security.md each row of a table of promises names a test, or the same as above."""
    text = named("security").read_text()
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    rows = re.findall(r"^\| (?!Promise)([A-Z`][^|]*) \| ([^|]*) \| [^|]*\|$", text, re.MULTILINE)
    assert len(rows) > 35
    for promise, tests in rows:
        names = re.findall(r"`(test_\w+)(\.py)?`", tests)
        assert names or tests in ("the same", "both"), promise
        for name, is_file in names:
            there = f"{name}.py" in sources if is_file else any(
                f"def {name}(" in source for source in sources.values()
            )  # fmt: skip
            assert there, f"docs/security.md: {name} is not there"


def test_every_question_of_the_paper_is_answered() -> None:
    letters = re.findall(r"^\| \*\*([A-Z]2?)\*\* ", named("paper").read_text(), re.MULTILINE)
    assert sorted(letters) == sorted([*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "D2"])


def test_settings_named_in_the_paper_exist() -> None:
    """Each `key=value` is taken by `rivals run` on some benchmark."""
    pairs = re.findall(r"`([\w.]+)=([^`…]*)(?:…)?`", named("paper").read_text())
    assert len(pairs) > 20
    assert accepted("lr", "0.1")
    assert not accepted("lr", "fast")
    for key, value in pairs:
        assert accepted(key, value or "64,64"), f"docs/paper.md: --set {key}={value}"


def accepted(key: str, value: str) -> bool:
    beside = ["competition.gating=relaxed"] if key == "competition.per_example" else []
    for benchmark in ("digits", "pmnist", "cifar100"):
        try:
            resolve(benchmark, "twta", "default", 0, parse_overrides([*beside, f"{key}={value}"]))
        except RivalsError:
            continue
        return True
    return False
