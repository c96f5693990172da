"""The command line: what it prints, where, and to whom."""

from __future__ import annotations

import fcntl
import io
import json
import os
import platform
import pty
import re
import shutil
import struct
import termios
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rivals.experiment.grid.engine import GridJob
from rivals.experiment.grid.grid_file import from_words
from rivals.experiment.result_file import read_results
from rivals.experiment.run_folder import RunFolder
from rivals.experiment.run_settings import resolve
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkSettings
from rivals.seeds import Seed
from rivals.settings import leaves
from rivals.streams.stream import streams
from rivals.tickets.ticket import Ticket

Accepted = Callable[..., str]
Refused = Callable[..., str]
Spawn = Callable[..., Any]
VERBS = (
    "learn", "test", "predict", "drop", "serve", "run", "compare", "report", "info", "export",
    "bench", "data", "check", "sign", "ancestor", "explain", "watch",
    "pack", "unpack", "join",
)  # fmt: skip


def test_bare_it_shows_examples(accepted: Accepted) -> None:
    printed = accepted()
    commands = re.findall(r"^  rivals (\w+)", printed, re.MULTILINE)
    assert set(VERBS) == set(commands)
    assert "--resume" in printed
    assert all(len(line) <= 100 for line in printed.splitlines())


def test_the_examples_are_real_words(accepted: Accepted) -> None:
    helps = {verb: accepted(verb, "--help") for verb in VERBS}
    helps["ancestor"] = accepted("ancestor", "make", "--help")
    for line in accepted().splitlines():
        example = re.match(r"  rivals (\w+)([^ ]| (?! ))*", line)
        if example:
            for option in re.findall(r"--\w+", example[0]):
                assert option in helps[example[1]]


def test_help_names_verbs_and_options(accepted: Accepted) -> None:
    printed = accepted("--help")
    assert all(verb in printed for verb in VERBS)
    printed = accepted("run", "--help")
    options = ("--method", "--preset", "--set", "--seed", "--out", "--resume", "--json", "--data")
    assert all(option in printed for option in options)
    assert "BENCHMARK" in printed


def test_json_is_the_results_and_nothing_else(
    tmp_path: Path, words: list[str], accepted: Accepted
) -> None:
    results = json.loads(accepted(*words, "--out", tmp_path / "run", "--json"))
    assert results == read_results(tmp_path / "run" / "results.json")
    summary = results["summary"]
    assert 0 < summary["accuracy"]["task_known"] <= 100
    assert 0 < summary["accuracy"]["task_inferred"] <= summary["accuracy"]["task_known"]
    assert 0 < summary["accuracy"]["calibration_error"] < 100
    assert summary["bti"] == 0
    assert 0 <= summary["overlap"] <= 100
    assert summary["retained"]["nominal"] == 50
    assert 0 < summary["retained"]["effective"] < 100
    assert summary["flops"] == sum(task["flops"] for task in results["tasks"]) > 0
    assert [task["name"] for task in results["tasks"]] == ["0-1-2-3-4", "5-6-7-8-9"]
    assert results["complete"] is True


def test_quiet_without_a_terminal(tmp_path: Path, words: list[str], spawn: Spawn) -> None:
    process = spawn("-m", "rivals.cli.main", *words, "--out", tmp_path / "run")
    printed, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert "\x1b" not in printed
    assert "\r" not in printed
    assert "loss" not in printed
    assert printed.lstrip().startswith("accuracy %, task known")
    assert printed.rstrip().endswith(f"tickets in {tmp_path / 'run' / 'tickets'}.")


def test_a_person_at_a_terminal_sees_how_it_goes(tmp_path: Path, spawn: Spawn) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    env |= {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    process = spawn(
        "-m", "rivals.cli.main", "run", "digits", "--set", "epochs=12", "--set", "share=0.9",
        "--out", tmp_path / "run", stdout=theirs, stderr=theirs, stdin=theirs, env=env,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    bar = r"task \d/5 \d-\d .*loss \d+\.\d{3}  accuracy \d+\.\d %"
    assert re.search(bar, text)
    assert re.search(bar + r"  τ 0\.\d\d", text)
    lines = re.findall(
        r"task (\d)/5 \d-\d: accuracy [\d.]+ % ± [\d.]+ of \d+ images, keeps [\d,]+ weights "
        r"\([\d.]+ % of the network\), "
        r"[\d,]+ bytes",
        text,
    )
    assert lines == ["1", "2", "3", "4", "5"]
    assert "accuracy %, task known" in text


HEAVY = ("torch", "numpy", "pydantic", "yaml", "rich", "jsonschema")
LIGHT_CHECK = f"""
import sys
from rivals.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code
print("imported:", [name for name in {HEAVY} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["--help"], []),
        (["--version"], []),
        ([], ["pydantic"]),  # newer versions of typer parse options with it
        (["run", "--help"], ["pydantic"]),
    ],
)
def test_help_imports_nothing_heavy(words: list[str], allowed: list[str], spawn: Spawn) -> None:
    printed, errors = spawn("-c", LIGHT_CHECK, *words).communicate()
    assert errors == ""
    assert printed.splitlines()[-1] in ("imported: []", f"imported: {allowed}")
    assert len(printed.splitlines()) > 1


def test_help_is_quick(spawn: Spawn) -> None:
    seconds = []
    for _ in range(3):  # the quickest counts: others may be using the machine
        before = os.times()
        assert spawn("-m", "rivals.cli.main", "--help").wait() == 0
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))  # CPU of child processes
    assert min(seconds) < 0.2


def test_the_package_is_a_program(spawn: Spawn) -> None:
    printed, errors = spawn("-m", "rivals", "--help").communicate()
    assert errors == ""
    assert printed.startswith("Usage: rivals ")


def test_version(accepted: Accepted) -> None:
    import torch

    import rivals

    said = accepted("--version")
    python = platform.python_version()
    assert said == f"rivals {rivals.__version__}, torch {torch.__version__}, Python {python}\n"


def test_version_without_torch(accepted: Accepted, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert ", torch not installed, " in accepted("--version")


def test_shells_complete_verbs_and_options(spawn: Spawn) -> None:
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # none may be near
    words = ("-m", "rivals.cli.main", "--show-completion", "bash")
    script, errors = spawn(*words, env=named).communicate()
    assert errors == ""
    assert "_RIVALS_COMPLETE" in script
    for line, expected in (("rivals te", "test"), ("rivals test --pl", "--plot")):
        env = {
            **os.environ, "_RIVALS_COMPLETE": "complete_bash", "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }  # fmt: skip
        printed, _ = spawn("-m", "rivals.cli.main", env=env).communicate()
        assert printed.split() == [expected]


# rivals run --------------------------------------------------------------------------------------


def long_results(tasks: int) -> dict[str, Any]:
    """Results of a stream with long names and the widest numbers."""
    names = [f"a task with a long name {number}" for number in range(1, tasks + 1)]
    matrix = [[100.0] * number for number in range(1, tasks + 1)]
    return {"tasks": [{"name": name} for name in names], "matrix": matrix}


@pytest.mark.parametrize("tasks", [1, 2, 10])
def test_the_matrix_fits_80_columns(tasks: int) -> None:
    from rivals.cli.run_screen import accuracy_table

    out = io.StringIO()
    Console(file=out, width=80).print(accuracy_table(long_results(tasks)))
    lines = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["after", "task", *map(str, range(1, tasks + 1))]
    for number, line in enumerate(lines[2:], 1):
        assert line.strip().startswith(f"{number}: a task")
        assert line.count("100.0") == number
    assert len(lines) == 2 + tasks


def test_a_long_stream_has_a_row_for_each_task() -> None:
    from rivals.cli.run_screen import accuracy_table

    table = accuracy_table(long_results(11))
    assert [column.header for column in table.columns] == ["task", "when learned", "at the end"]
    assert table.row_count == 11


def test_devices(tmp_path: Path, words: list[str], accepted: Accepted, refused: Refused) -> None:
    assert "There is no device named 'tpu'" in refused(
        *words, "--out", tmp_path / "tpu", "--device", "tpu"
    )
    assert not (tmp_path / "tpu").exists()
    out = tmp_path / "auto"
    results = json.loads(accepted(*words, "--out", out, "--device", "auto", "--json"))
    assert results["complete"] is True
    assert json.loads(accepted("info", out, "--json"))["config"]["device"] == "auto"


def test_a_comparison_says_its_device() -> None:
    (run,) = from_words("digits", "twta", "0", "default", [], device="auto")
    assert run.settings().device == "auto"
    assert "--device auto" in run.command(Path("runs"))
    assert GridJob(run, Path("runs")).to_dict()["device"] == "auto"
    assert "--device" not in from_words("digits", "twta", "0", "default", [])[0].command(Path("x"))


def test_a_benchmark_in_the_place_of_the_grid_file(refused: Refused) -> None:
    for more in ([], ["--seeds", "2"], ["--methods", "twta"]):
        said = refused("compare", "digits", *more)
        assert "write rivals compare --benchmarks digits." in said


# Missing models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "x.png", "--model"],
        ["test", "pictures", "--model"],
        ["drop", "screws", "--model"],
        ["info"],
        ["export", "x.onnx", "--task", "screws", "--model"],
    ],
)
def test_a_missing_model_suggests_learn(
    words: list[str], tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "`rivals learn FOLDER --model parts`" in refused(*words, "parts")
    assert not any(tmp_path.iterdir())


def test_a_reader_that_leaves_early_is_no_error(finished: Path, spawn: Spawn) -> None:
    read, write = os.pipe()
    os.close(read)
    process = spawn("-m", "rivals.cli.main", "info", finished, "--json", stdout=write)
    os.close(write)
    _, errors = process.communicate()
    assert "Traceback" not in errors
    assert errors == ""


# rivals info -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["twta", "finetune"])
def test_info_of_the_settings_of_a_method(method: str, accepted: Accepted) -> None:
    facts = json.loads(accepted("info", "--settings", method, "--json"))
    found = {row["name"]: row for rows in facts["settings"].values() for row in rows}
    models = (methods[method].settings_class, NetworkSettings)
    assert list(found) == [path for model in models for path, _ in leaves(model)]
    own = models[0]()
    for name in (path for path, _ in leaves(models[0])):
        value = own
        for part in name.split("."):
            value = getattr(value, part)
        assert found[name]["default"] == (list(value) if isinstance(value, tuple) else value)
    assert found["augmentation"]["choices"] == ["none", "flip", "crop", "crop-flip"]
    printed = accepted("info", "--settings", method)
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    for name, row in found.items():
        assert name in printed
        assert row["help"].split()[0] in printed if row["help"] else True
    assert "--set NAME=VALUE" in printed


def test_info_of_the_settings_of_a_benchmark(accepted: Accepted, refused: Refused) -> None:
    facts = json.loads(accepted("info", "--settings", "digits", "--json"))
    assert {row["name"]: row["default"] for row in facts["settings"]["stream"]}["tasks"] == 5
    assert "did you mean twta" in refused("info", "--settings", "tvta")
    assert "give one of them" in refused("info", ".", "--settings", "twta")
    assert "give one of them" in refused("info")


def test_info_of_a_run(finished: Path, accepted: Accepted) -> None:
    results = read_results(finished / "results.json")
    printed = accepted("info", finished)
    assert f"{results['summary']['accuracy']['task_known']:.1f} %" in printed
    for task in results["tasks"]:
        assert task["name"] in printed
        assert f"{task['ticket']['weights']:,}" in printed
    assert "Not finished" not in printed
    facts = json.loads(accepted("info", finished, "--json"))
    assert facts["kind"] == "run"
    assert facts["results"] == results
    assert (facts["config"]["method"], facts["config"]["seed"]) == ("twta", 0)


def test_info_of_a_run_that_is_not_finished(stopped: Path, accepted: Accepted) -> None:
    printed = accepted("info", stopped)
    assert "Not finished: 1 task" in printed
    assert "0-1-2-3-4" in printed
    assert json.loads(accepted("info", stopped, "--json"))["results"]["complete"] is False


def test_info_of_a_run_that_has_just_begun(tmp_path: Path, accepted: Accepted) -> None:
    settings = resolve("digits")
    RunFolder(tmp_path).start(settings, streams["digits"].build(settings.stream, Seed(0)))
    assert "A run of twta on digits: no task is learned yet." in accepted("info", tmp_path)
    assert json.loads(accepted("info", tmp_path, "--json"))["results"] is None


def test_info_of_a_ticket(finished: Path, accepted: Accepted) -> None:
    folder = finished / "tickets" / "5-6-7-8-9"
    stored = json.loads((folder / "ticket.json").read_text())
    printed = accepted("info", folder)
    assert "ticket for 5-6-7-8-9" in printed
    assert "5, 6, 7, 8, 9" in printed
    assert f"{stored['accuracy']:.1f} %" in printed
    assert f"{(folder / 'weights.safetensors').stat().st_size:,} bytes" in printed
    facts = json.loads(accepted("info", folder, "--json"))
    assert (facts["kind"], facts["fingerprint"]) == ("ticket", Ticket.load(folder).fingerprint())
    assert {key: facts[key] for key in stored} == stored


def test_info_of_something_else(tmp_path: Path, refused: Refused) -> None:
    assert "holds neither a model, a run nor a ticket" in refused("info", tmp_path)
    (tmp_path / "file").write_text("x")
    said = refused("info", tmp_path / "file")
    assert "is a file, but the folder" in said
    assert "`rivals check` describes exported files" in said
    assert "make a model with `rivals learn" in refused("info", tmp_path / "nowhere", "--json")


def test_info_of_what_is_damaged(finished: Path, tmp_path: Path, refused: Refused) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    ticket = run / "tickets" / "0-1-2-3-4"
    (ticket / "weights.safetensors").write_bytes(b"x")
    assert "were altered" in refused("info", ticket)
    results = read_results(run / "results.json")
    for broken in ({**results, "matrix": "none"}, {**results, "format": 2}, {"format": 1}):
        (run / "results.json").write_text(json.dumps(broken))
        assert "does not fit its schema" in refused("info", run)
    (run / "config.yaml").write_text("format: 9\n")
    assert "has format 9" in refused("info", run)
