"""Runs and grids that somebody else made: nothing in them is imported, followed or believed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import rivals
from rivals.errors import RivalsError
from rivals.experiment.checkpoint import CheckpointFolder
from rivals.experiment.result_file import read_results, write_results
from rivals.experiment.run_check import check_run
from rivals.experiment.run_folder import RunFolder
from rivals.io.files import write_yaml
from rivals.io.seal import sealed
from rivals.learn.masked_ticket import SomeMasked
from rivals.learn.method import methods
from rivals.nn.competition import ActiveUnits
from rivals.registry import imports_allowed
from rivals.tickets.ticket import Ticket

Accepted = Callable[..., str]
Refused = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]
SMALL = ["tasks=1", "epochs=1", "architecture=mlp", "widths=8-8", "units=2"]


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run, to be tampered with."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def configure(run: Path, **changes: Any) -> None:
    """Change config.yaml, as somebody does who knows how it is written."""
    content = {**RunFolder(run).read_config(), **changes}
    write_yaml(run / "config.yaml", sealed(content))


# Imports -----------------------------------------------------------------------------------------

EVIL = """
from pathlib import Path
Path("it-ran").touch()
from rivals.baselines.controls import Finetune
from rivals.nn.small import mlp
from rivals.streams.digits import Digits, DigitsSettings
from rivals.streams.stream import Benchmark
T = Benchmark(DigitsSettings, Digits)
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working folder; the file that appears when it is imported."""
    (tmp_path / "evilmod.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as `python -m` does
    yield tmp_path / "it-ran"
    sys.modules.pop("evilmod", None)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"benchmark": "evilmod:T"}, "evilmod:T"),
        ({"method": "evilmod:Finetune"}, "evilmod:Finetune"),
        ({"network": {"architecture": "evilmod:mlp", "widths": [16, 16], "units": 2}},
         "evilmod:mlp"),
    ],
    ids=["benchmark", "method", "architecture"],
)  # fmt: skip
def test_a_run_does_not_choose_what_is_imported(
    changes: dict[str, Any], name: str, run: Path, evil: Path, refused: Refused,
    accepted: Accepted, words: list[str],
) -> None:  # fmt: skip
    configure(run, **changes)
    task = ("export", "--model", run, "--all-tasks", "out.onnx")
    assert f"add --allow-import {name}." in refused(*task)
    accepted("info", run)
    accepted("report", run, "--out", "report")
    assert "holds another run" in refused(*words, "--out", run, "--resume")
    assert not evil.exists()
    assert not Path("out.onnx").exists()


def test_an_export_imports_what_the_command_line_allows(
    run: Path, evil: Path, accepted: Accepted, refused: Refused
) -> None:
    configure(run, benchmark="evilmod:T")
    words = ("export", "--model", run, "--task", "0-1-2-3-4", "out.onnx")
    refused(*words, "--allow-import", "evilmod:Other")
    assert not evil.exists()
    accepted(*words, "--allow-import", "evilmod:T")
    assert evil.exists()
    assert Path("out.onnx").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmarks": ["evilmod:T"]},
        {"methods": ["evilmod:Finetune"]},
        {"set": {**dict(word.split("=") for word in SMALL), "architecture": "evilmod:mlp"}},
    ],
    ids=["benchmark", "method", "architecture"],
)
def test_a_grid_file_does_not_choose_what_is_imported(
    changes: dict[str, Any], tmp_path: Path, evil: Path, refused: Refused, accepted: Accepted
) -> None:
    grid = {"benchmarks": ["digits"], "methods": ["finetune"], "set": _settings(), **changes}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    compare = ("compare", "grid.yaml", "--out", "out", "--workers", "1")
    name = changes["set"]["architecture"] if "set" in changes else next(iter(changes.values()))[0]
    assert f"add --allow-import {name}." in refused(*compare)
    assert not Path("out").exists()
    assert not evil.exists()
    allowed = json.loads(accepted(*compare, "--allow-import", name, "--json"))
    assert [each["status"] for each in allowed["runs"]] == ["finished"]
    assert evil.exists()


def _settings() -> dict[str, str]:
    return dict(word.split("=") for word in SMALL)


def test_a_module_of_the_working_folder_does_not_replace_ours_in_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: Accepted
) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no PYTHONSAFEPATH.")
    (tmp_path / "yaml.py").write_text('open("it-ran", "w"); raise SystemExit(3)')
    monkeypatch.chdir(tmp_path)
    words = [word for change in SMALL for word in ("--set", change)]
    grid = ("--benchmarks", "digits", "--methods", "finetune", "--workers", "1", "--json")
    said = json.loads(accepted("compare", *grid, *words))
    assert [each["status"] for each in said["runs"]] == ["finished"]
    assert not Path("it-ran").exists()


def test_python_imports_what_it_is_given_and_only_in_that_call(evil: Path) -> None:
    settings = {**_settings(), "architecture": "evilmod:mlp"}
    results = rivals.run("evilmod:T", "evilmod:Finetune", settings=settings, out="mine")
    assert results.content["method"] == "evilmod:Finetune"
    (found,) = rivals.compare("evilmod:T", "evilmod:Finetune", settings=settings, workers=1)
    assert found.status == "finished"
    with pytest.raises(
        RivalsError, match=r"do this inside .*imports_allowed\(\['evilmod:Finetune'\]\)\.$"
    ):
        methods["evilmod:Finetune"]
    with imports_allowed(["evilmod:Finetune"]):
        assert methods["evilmod:Finetune"].__name__ == "Finetune"


# Links, pipes and devices ------------------------------------------------------------------------

INNER = ["config.yaml", "results.json", "checkpoint", "checkpoint/manifest.json", "tickets"]


@pytest.mark.parametrize("name", [*INNER, "measured.json"])
def test_links_in_a_run_are_refused_and_nothing_behind_them_changes(
    name: str, run: Path, finished: Path, tmp_path: Path, refused: Refused, tree: Tree,
    words: list[str],
) -> None:  # fmt: skip
    """The sweep of a checkpoint once deleted the files of the folder that a link led to."""
    precious = Path(shutil.copytree(finished, tmp_path / "precious"))
    (precious / "checkpoint" / "mine.safetensors").write_text("kept")
    (precious / "tickets" / ".mine.part").write_text("kept")
    if (run / name).is_dir():
        shutil.rmtree(run / name)
    else:
        (run / name).unlink()
    (run / name).symlink_to(precious / name)
    before = tree(precious)
    assert "is a link" in refused(*words, "--out", run, "--resume")
    if name in ("config.yaml", "results.json"):
        assert "is a link" in refused("info", run)
        assert "is a link" in refused("report", run, "--out", tmp_path / "report")
    if name == "tickets":
        task = ("--task", "0-1-2-3-4", tmp_path / "out.onnx")
        assert "is a link" in refused("export", "--model", run, *task)
    if name.startswith("checkpoint"):
        with pytest.raises(RivalsError, match="is a link"):
            CheckpointFolder(run / "checkpoint").sweep()
    assert tree(precious) == before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("what", ["a pipe", "a device", "a loop"])
@pytest.mark.parametrize("name", ["config.yaml", "results.json", "checkpoint/manifest.json"])
def test_pipes_and_devices_in_a_run_do_not_hang(
    what: str, name: str, run: Path, tmp_path: Path, refused: Refused, accepted: Accepted,
    words: list[str],
) -> None:  # fmt: skip
    (run / name).unlink()
    if what == "a pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero" if what == "a device" else name.rpartition("/")[2])
    refused(*words, "--out", run, "--resume")
    verb = ("export", "--model", run, "--all-tasks", tmp_path / "out.onnx")
    if name != "checkpoint/manifest.json":
        refused("report", run, "--out", tmp_path / "report")
    if (what, name) == ("a loop", "results.json"):
        accepted("info", run)  # as long as there are no results, none are shown
    elif name != "checkpoint/manifest.json":
        refused("info", run)
    refused(*verb)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe", "loop"])
def test_a_grid_or_a_report_of_a_device(
    path: str, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    refused("compare", path)
    refused("report", path)
    refused("info", path)


# A folder that goes away -------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["moved", "removed", "exchanged"])
@pytest.mark.parametrize("at", [3, 13])
def test_a_run_whose_folder_goes_away_reports_no_success(
    change: str, at: int, tmp_path: Path, changes: list[str], tree: Tree
) -> None:
    folder, calls = tmp_path / "run", iter(range(1000))

    def while_it_learns() -> bool:
        if next(calls) == at:
            folder.rename(tmp_path / "elsewhere")
            if change == "exchanged":
                folder.mkdir()
                (folder / "notes.txt").write_text("another folder")
            if change == "removed":
                shutil.rmtree(tmp_path / "elsewhere")
        return False

    settings = dict(each.split("=") for each in changes)
    with pytest.raises(RivalsError, match="was moved, removed or exchanged"):
        rivals.run("digits", settings=settings, out=folder, asked_to_stop=while_it_learns)
    assert folder.exists() == (change == "exchanged")
    if change == "exchanged":
        assert list(tree(folder)) == ["notes.txt"]
    if change == "moved":  # it goes on from there
        rivals.run("digits", settings=settings, out=tmp_path / "elsewhere", resume=True)


# Damage ------------------------------------------------------------------------------------------

DEEP = "[" * 20_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "format: 2\nbenchmark: digits\nseed: 0\n"),  # no method
        ("config.yaml", f"format: 2\nmethod: {DEEP}"),
        ("config.yaml", "format: 2\na: &a [1, 2]\nb: *a\n"),
        ("config.yaml", "format: 2\n? 2020-01-01\n: 1\n"),
        ("config.yaml", f"format: 2\nseed: 0x{'f' * 5000}\n"),
        ("results.json", f'{{"format": {DEEP}'),
        ("results.json", '{"format": 1}'),
        ("results.json", "Infinity"),
    ],
    ids=["no method", "deep yaml", "aliases", "date", "digits", "deep json", "short", "infinity"],
)
def test_files_of_a_run_that_once_ended_in_a_traceback(
    name: str, text: str, run: Path, tmp_path: Path, refused: Refused
) -> None:
    (run / name).write_text(text)
    assert name in refused("info", run)
    if "benchmark" not in text:  # a report shows settings, whatever they are
        assert name in refused("report", run, "--out", tmp_path / "report")
    refused("export", "--model", run, "--all-tasks", tmp_path / "out.onnx")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("results.json", '"classes":["0","1"', '"classes":["1","0"'),
        ("results.json", '"complete": true', '"complete": false'),
        ("config.yaml", "activation: relu", "activation: linear"),
        ("checkpoint/manifest.json", '"done": 2', '"done": 1'),
    ],
)
def test_a_changed_word_is_noticed(
    name: str, old: str, new: str, run: Path, tmp_path: Path, refused: Refused, words: list[str]
) -> None:
    text = (run / name).read_text()
    (run / name).write_text(text.replace(old, new, 1))
    assert text != (run / name).read_text()
    told = refused("export", "--model", run, "--all-tasks", tmp_path / "out.onnx")
    assert f"{name} is damaged: it has another checksum than it says" in told
    if name != "results.json":  # which is made again from the checkpoint
        assert "another checksum" in refused(*words, "--out", run, "--resume")
    if name != "checkpoint/manifest.json":
        assert "another checksum" in refused("info", run)
        assert "another checksum" in refused("report", run, "--out", tmp_path / "report")


def test_results_of_older_versions_have_no_checksum_and_are_read(
    run: Path, tmp_path: Path, accepted: Accepted
) -> None:
    content = json.loads((run / "results.json").read_text())
    assert len(content.pop("sha256")) == 64
    (run / "results.json").write_text(json.dumps(content))
    accepted("report", run, "--out", tmp_path / "report")
    accepted("info", run)


# Grids -------------------------------------------------------------------------------------------

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{LAUGHS}benchmarks: *i\n", "YAML aliases"),
        (f"benchmarks: digits\nset: {{epochs: '{LAUGHS}'}}\n", "epochs must be a whole number"),
        (f"benchmarks: {DEEP}", "grid.yaml"),
        (f"benchmarks: digits\nset: {{epochs: '{DEEP}'}}", "epochs must be a whole number"),
        (f"benchmarks: digits\nset: {{widths: '1{' ' * 200_000}2'}}", "widths"),
        (f"benchmarks: {['digits'] * 2000}\nseeds: {[*range(2000)]}", "at most 20,000"),
        ("benchmarks: digits\n" * 2 + "x" * 2_000_000, "at most 1,048,576"),
        (f"benchmarks: digits\nseeds: [0x{'f' * 5000}]", "300 digits"),
    ],
    ids=["laughs", "laughs in a word", "deep", "deep in a word", "spaces", "runs", "long",
         "digits"],
)  # fmt: skip
def test_grids_that_once_took_for_ever(
    text: str, sentence: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "grid.yaml").write_text(text)
    begun = time.monotonic()
    assert sentence in refused("compare", tmp_path / "grid.yaml", "--out", tmp_path / "out")
    assert time.monotonic() - begun < 10
    assert not (tmp_path / "out").exists()


# check_run ---------------------------------------------------------------------------------------


def test_a_run_is_whole_whatever_its_method(finished: Path, stopped: Path, tree: Tree) -> None:
    before = tree(finished)
    assert check_run(finished) == [
        "a run of twta on digits, seed 0", "2 tasks, finished, in results.json",
        f"a checkpoint of {len(CheckpointFolder(finished / 'checkpoint').load().state)} parts",
        "2 tickets", "every ticket equals what is cut out of its masked network",
    ]  # fmt: skip
    assert tree(finished) == before
    assert "1 tasks, not finished, in results.json" in check_run(stopped)


def test_a_run_that_has_just_begun_or_has_no_checkpoint_is_whole(run: Path) -> None:
    shutil.rmtree(run / "checkpoint")
    assert "no checkpoint, so it cannot be resumed" in check_run(run)
    (run / "results.json").unlink()
    assert "no task is learned yet" in check_run(run)


def test_tickets_of_a_run_are_compared_with_their_masked_network(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked = SomeMasked.select
    monkeypatch.setattr(
        SomeMasked, "select", lambda self, rivals: ActiveUnits(masked(self, rivals).ids)
    )  # no gates: losers have a say
    with pytest.raises(RivalsError, match="differs from its network"):
        check_run(finished)


def forge_ticket(run: Path) -> None:
    """Another ticket of the same shape, as whole as the first."""
    tickets = [Ticket.load(run / "tickets" / name) for name in ("0-1-2-3-4", "5-6-7-8-9")]
    tickets[0].network = tickets[1].network
    tickets[0].save(run / "tickets" / "0-1-2-3-4")


def swap_classes(run: Path) -> None:
    results = read_results(run / "results.json")
    results["tasks"][0]["classes"].reverse()
    write_results(run / "results.json", results)


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (lambda run: (run / "tickets" / "more").symlink_to(run), "is a link"),
    "pipe": (lambda run: os.mkfifo(run / "more"), "not a regular file"),
    "no settings": (lambda run: (run / "config.yaml").unlink(), "config.yaml cannot be read"),
    "other settings": (lambda run: configure(run, seed=7), "its seed is 7 in config.yaml and 0"),
    "classes": (swap_classes, "hold different results"),
    "ticket": (forge_ticket, "the ticket of '0-1-2-3-4' is not what is cut out"),
    "no ticket": (lambda run: shutil.rmtree(run / "tickets" / "5-6-7-8-9"), "ticket"),
    "measured": (lambda run: (run / "measured.json").write_text("{"), "not valid JSON"),
    "network": (
        lambda run: configure(run, network={"architecture": "mlp", "widths": [8192] * 8}),
        "more than 67,108,864 pairs of units",
    ),
    "training": (lambda run: configure(run, training={"lr": "x"}), "lr must be a number"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_run_is_not_whole(harm: str, run: Path) -> None:
    act, sentence = HARM[harm]
    act(run)
    with pytest.raises(RivalsError, match=sentence):
        check_run(run)


# Wrong, with a right checksum --------------------------------------------------------------------


def put(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *outer, last = path.split(".")
    at: Any = content
    for name in outer:
        at = at[int(name) if name.isdigit() else name]
    at[int(last) if last.isdigit() else last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("summary.bytes", None), ("summary.overlap", "much"), ("summary.retained.weights", []),
        ("summary.accuracy.task_known", 10**400), ("seed", 10**400), ("matrix.1", [50.0]),
        ("tasks.0.ticket.bytes", 1e400), ("tasks.0.winners", [[10**30]]), ("tasks", []),
    ],
)  # fmt: skip
def test_results_that_nobody_could_show(
    path: str, value: Any, run: Path, tmp_path: Path, refused: Refused
) -> None:
    content = put(json.loads((run / "results.json").read_text()), path, value)
    (run / "results.json").write_text(json.dumps(sealed(content)))
    assert "results.json" in refused("info", run)
    assert "results.json" in refused("report", run, "--out", tmp_path / "report")


@pytest.mark.parametrize(
    ("path", "value"),
    [("done", []), ("done", 1), ("results.tasks", []), ("parts", []), ("parts.common.facts", 1)],
)
def test_checkpoints_that_nobody_could_resume(
    path: str, value: Any, run: Path, refused: Refused, words: list[str]
) -> None:
    manifest = run / "checkpoint" / "manifest.json"
    content = put(json.loads(manifest.read_text()), path, value)
    manifest.write_text(json.dumps(sealed(content)))
    assert "checkpoint" in refused(*words, "--out", run, "--resume")


def test_measurements_of_another_type_begin_anew(
    run: Path, accepted: Accepted, words: list[str]
) -> None:
    manifest = run / "checkpoint" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["measured"] |= {"resumed": "x", "train_seconds": {"a": "long", "b": 2.5}}
    manifest.write_text(json.dumps(sealed(content)))
    accepted(*words, "--out", run, "--resume")
    measured = json.loads((run / "measured.json").read_text())
    assert (measured["resumed"], measured["train_seconds"]) == (1, {"b": 2.5})


def test_data_settings_of_another_type(run: Path, tmp_path: Path, refused: Refused) -> None:
    configure(run, data={"measured_on": 3.5, "fingerprint": "x"})
    words = ("--task", "0-1-2-3-4", tmp_path / "out.onnx")
    assert "config.yaml is damaged" in refused("export", "--model", run, *words)
