"""Whatever is wrong is told in one sentence with status 2, and nothing is lost."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import yaml

from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.experiment.checkpoint import CheckpointFolder
from rivals.io.locks import LOCK_NAME, FolderLock
from rivals.io.seal import sealed
from rivals.learn.method import methods
from toys import FROZEN

Tree = Callable[[Path], dict[str, str]]
Refused = Callable[..., str]
Outcome = Callable[[Path], dict[str, Any]]


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    """A run stopped in the middle of its second task, to be harmed."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def index(folder: Path) -> Path:
    return folder / "checkpoint" / "manifest.json"


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(index(folder).read_text())
    return content


def part(folder: Path, name: str = "working") -> Path:
    return folder / "checkpoint" / manifest(folder)["parts"][name]["file"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def instead_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[random.Random(5).randrange(len(data))] ^= 16
    path.write_bytes(data)


def rewrite(folder: Path, **changes: Any) -> None:
    index(folder).write_text(json.dumps(manifest(folder) | changes))


def reconfigure(folder: Path, **changes: Any) -> None:
    content = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(sealed(content | changes), sort_keys=False))


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# Damage ------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "part truncated": (lambda f: truncate(part(f)), "another checksum"),
    "part emptied": (lambda f: part(f).write_bytes(b""), "another checksum"),
    "part altered": (lambda f: flip(part(f)), "another checksum"),
    "part of a done task altered": (lambda f: flip(part(f, "task/0-1-2-3-4")), "another checksum"),
    "part missing": (lambda f: part(f).unlink(), "cannot be read (No such file or directory)"),
    "part a folder": (
        lambda f: instead_a_folder(part(f)),
        "cannot be read (Is a directory)",
    ),
    "parts swapped": (
        lambda f: shutil.copy(part(f, "task/0-1-2-3-4"), part(f)), "another checksum",
    ),
    "manifest truncated": (
        lambda f: truncate(index(f)), "it is not valid JSON",
    ),
    "manifest emptied": (
        lambda f: index(f).write_bytes(b""), "it is not valid JSON",
    ),
    "manifest not text": (
        lambda f: index(f).write_bytes(b"\xff\xfe\x00"), "not valid JSON",
    ),
    "manifest a list": (
        lambda f: index(f).write_text("[]"), "holds no JSON object",
    ),
    "manifest a folder": (
        lambda f: instead_a_folder(index(f)),
        "cannot be read (Is a directory)",
    ),
    "a number in the manifest": (
        lambda f: replace(index(f), '"epoch": 0', '"epoch": 1'),
        "manifest.json is damaged: it has another checksum",
    ),
    "no parts": (lambda f: rewrite(f, parts={}), "another checksum"),
    "newer checkpoint": (lambda f: rewrite(f, format=2), "has format 2, and this"),
    "older checkpoint": (lambda f: rewrite(f, format=0), "has format 0, and this"),
    "no format": (lambda f: rewrite(f, format=None), "has format None"),
    "newer settings": (lambda f: reconfigure(f, format=3), "has format 3, and this"),
    "settings emptied": (lambda f: (f / "config.yaml").write_bytes(b""), "holds no settings"),
    "settings not text": (lambda f: (f / "config.yaml").write_bytes(b"\xff\xfe"), "not valid YAML"),
    "settings not YAML": (lambda f: (f / "config.yaml").write_text("a: [1"), "is not valid YAML"),
    "settings a word": (lambda f: (f / "config.yaml").write_text("hello"), "holds no settings"),
    "settings truncated": (lambda f: truncate(f / "config.yaml"), ""),
    "settings altered": (
        lambda f: replace(f / "config.yaml", "momentum: 0.9", "momentum: 0.8"),
        "config.yaml is damaged: it has another checksum",
    ),
    "settings of another run": (
        lambda f: reconfigure(f, seed=1), "its seed is 1, not 0",
    ),
    "other data": (
        lambda f: reconfigure(f, data={"fingerprint": "else", "subset": ""}), "fingerprint is else",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_told_and_nothing_is_touched(
    damage: str, folder: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    harm, sentence = DAMAGE[damage]
    harm(folder)
    before = tree(folder)
    told = refused(*words, "--out", folder, "--resume")
    assert sentence in told
    assert str(folder) in told
    assert tree(folder) == before


def test_a_checkpoint_with_a_right_checksum_that_does_not_fit_is_told(
    folder: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    store = CheckpointFolder(folder / "checkpoint")
    checkpoint = store.load()
    del checkpoint.state["working"]
    store.save(checkpoint)
    before = tree(folder)
    assert "does not fit this run (KeyError)" in refused(*words, "--out", folder, "--resume")
    assert tree(folder) == before


def test_damaged_results_are_made_again_from_the_checkpoint(
    folder: Path, words: list[str], refused: Refused, accepted: Callable[..., str],
    outcome: Outcome, finished: Path,
) -> None:  # fmt: skip
    (folder / "results.json").write_text("{")
    assert "results.json is damaged" in refused("info", folder)
    accepted(*words, "--out", folder, "--resume")
    assert outcome(folder) == outcome(finished)


# The wrong folder --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "difference"),
    [
        (["--set", "lr=0.1"], "its lr is 0.05, not 0.1"),
        (["--set", "epochs=3"], "its epochs is 2, not 3"),
        (["--set", "test_share=0.3"], "its test_share is 0.2, not 0.3"),
        (["--set", "units=4"], "its units is 2, not 4"),
        (["--seed", "1"], "its seed is 0, not 1"),
        (["--method", "finetune"], "its method is twta, not finetune"),
        (["--method", "random-ticket"], "its method is twta, not random-ticket"),
        (["--threads", "2"], "its threads is 1, not 2"),
    ],
)
def test_the_folder_of_another_run(
    more: list[str], difference: str, folder: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    before = tree(folder)
    told = refused(*words, *more, "--out", folder, "--resume")
    assert "holds another run" in told
    assert difference in told
    assert tree(folder) == before


def test_the_folder_of_another_benchmark(folder: Path, refused: Refused, tree: Tree) -> None:
    before = tree(folder)
    told = refused("run", "digits-permuted", "--out", folder, "--resume")
    assert "its benchmark is digits, not digits-permuted" in told
    assert tree(folder) == before


@pytest.mark.parametrize(
    ("kind", "more", "sentence"),
    [
        ("run", [], "already holds a run; go on with it by --resume"),
        ("foreign", [], "is not empty and holds no run"),
        ("foreign", ["--resume"], "holds no run to resume"),
        ("file", [], "is a file"),
        ("file", ["--resume"], "holds no run to resume"),
        ("empty", ["--resume"], "holds no run to resume"),
        ("missing", ["--resume"], "holds no run to resume"),
    ],
)
def test_folders_that_will_not_do(
    kind: str, more: list[str], sentence: str, folder: Path, tmp_path: Path, words: list[str],
    refused: Refused, tree: Tree,
) -> None:  # fmt: skip
    place = folder if kind == "run" else tmp_path / kind
    if kind == "foreign":
        place.mkdir()
        (place / "thesis.tex").write_text("ten years of work")
        (place / ".notes.part").write_text("half")
    elif kind == "file":
        place.write_text("not a folder")
    elif kind == "empty":
        place.mkdir()
    before = tree(tmp_path)
    told = refused(*words, "--out", place, *more)
    assert sentence in told
    assert str(place) in told
    assert tree(tmp_path) == before


def test_a_run_killed_before_its_first_word_can_be_started_again(
    tmp_path: Path, words: list[str], accepted: Callable[..., str], outcome: Outcome, finished: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.4711.part").write_text("format: 1\nben")
    (tmp_path / "run" / LOCK_NAME).touch()
    accepted(*words, "--out", tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(finished)


def test_places_where_nothing_can_be_made(
    tmp_path: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    (tmp_path / "file").write_text("x")
    before = tree(tmp_path)
    for place in (tmp_path / "file" / "below", Path("/proc/rivals"), tmp_path / ("a" * 300)):
        for resume in ([], ["--resume"]):
            assert str(place) in refused(*words, "--out", place, *resume)
    assert tree(tmp_path) == before


def as_nobody(*arguments: str | Path) -> tuple[int, str]:
    """Status and stderr of a command line, by a user who may write nothing of ours."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        errors, status = io.StringIO(), 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            with redirect_stderr(errors):
                main([str(word) for word in arguments])
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        except BaseException:
            errors.write(traceback.format_exc())
        finally:
            os.write(write, errors.getvalue().encode())
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told


def test_places_where_one_may_not_write(stopped: Path, words: list[str], tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        shutil.copytree(stopped, top / "run")
        (top / "locked").mkdir(mode=0o700)
        (top / "hidden").mkdir(mode=0o711)
        shutil.copytree(stopped, top / "hidden" / "run")
        (top / "empty").mkdir()
        for path in (top, top / "empty", *top.glob("run/**/*"), top / "run"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        (top / "locked").chmod(0o000)
        before = tree(top)
        for place in ("new", "new/er", "empty", "locked", "locked/new", "hidden/new"):
            status, told = as_nobody(*words, "--out", top / place)
            assert (status, told.count("\n")) == (2, 1), told
            assert str(top / place) in told
        status, told = as_nobody(*words, "--out", top / "run", "--resume")
        assert (status, told.count("\n")) == (2, 1), told
        assert "Could not write" in told
        status, told = as_nobody(*words, "--out", top / "locked" / "run", "--resume")
        assert (status, told.count("\n")) == (2, 1), told
        status, told = as_nobody("info", top / "locked" / "run")
        assert (status, told.count("\n")) == (2, 1), told
        assert tree(top) == before
        for path in (top, *top.rglob("*")):
            path.chmod(0o755)


# A full disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("too_long", ["settings", "last checkpoint"])
def test_files_that_may_grow_no_further(
    too_long: str, tmp_path: Path, words: list[str], spawn: Callable[..., Any], refused: Refused,
    accepted: Callable[..., str], outcome: Outcome, finished: Path,
) -> None:  # fmt: skip
    """The kernel refuses files above a limit: one too low for the settings, or one that is just
    exceeded when the second task is done."""
    folder, store = tmp_path / "run", finished / "checkpoint"
    largest = max(path.stat().st_size for path in store.iterdir())  # what all tasks have a share in
    limit = 100 if too_long == "settings" else largest - 50
    process = spawn(
        "-B", "-m", "rivals.cli.main", *words, "--out", folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    printed, told = process.communicate()
    assert (process.returncode, printed, told.count("\n")) == (2, "", 1), told
    assert told.startswith("rivals: Could not write ")
    assert "(File too large); make room there or choose another folder." in told
    assert list(folder.rglob("*.part")) == []
    if too_long == "settings":
        assert list(folder.iterdir()) == []
        accepted(*words, "--out", folder)
    else:
        assert CheckpointFolder(folder / "checkpoint").load().done == 1
        accepted(*words, "--out", folder, "--resume")
    assert outcome(folder) == outcome(finished)


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A file system of its own with very little room, where this machine lets us have one."""
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    try:
        made = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("There is no mount here, so no small disk can be filled.")
    if made.returncode:
        pytest.skip("No file system may be mounted here, so no small disk can be filled.")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.parametrize("room", [4, 40, 50, 60])  # kilobytes
def test_a_disk_that_is_full(
    room: int, tmp_path: Path, words: list[str], refused: Refused, accepted: Callable[..., str],
    outcome: Outcome, finished: Path,
) -> None:  # fmt: skip
    disk = tmp_path / "disk"
    with small_disk(disk, f"{room}k"):
        folder = disk / "run"
        told = refused(*words, "--out", folder, "--save-every", "0")
        assert "(No space left on device)" in told
        assert list(folder.rglob("*.part")) == []
        begun = (folder / "config.yaml").exists()
        resume = ["--resume"] if begun else []
        if (folder / "checkpoint" / "manifest.json").exists():
            CheckpointFolder(folder / "checkpoint").load()
        else:
            assert room < 40, "this much is enough for a checkpoint"
        more = ["mount", "-o", "remount,size=8m", str(disk)]
        subprocess.run(more, check=True, capture_output=True)
        accepted(*words, "--out", folder, *resume)
        assert outcome(folder) == outcome(finished)


# Learning that goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("method", [name for name in methods if name not in FROZEN])
def test_a_loss_that_is_no_number(
    method: str, tmp_path: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    folder = tmp_path / "run"
    line = [*words, "--method", method, "--set", "lr=1e30", "--save-every", "0", "--out", folder]
    if method == "lamaml":  # which learns its step sizes, but for this variant
        line += ["--set", "variant=sync"]
    told = refused(*line)
    assert "The loss became nan in task '0-1-2-3-4' at step" in told
    assert "lower lr (now 1e+30)" in told
    assert not (folder / "results.json").exists()
    before = tree(folder)
    good = CheckpointFolder(folder / "checkpoint").load()
    step = good.state["common"].facts["position"]["step"]
    assert step >= 1
    assert f"at step {step + 1} of " in told, "the state before the bad step is the one kept"
    assert refused(*line, "--resume") == told
    after = tree(folder)
    del before["measured.json"], after["measured.json"]
    assert after == before


def test_a_network_that_is_full_keeps_what_was_learned(
    tmp_path: Path, words: list[str], refused: Refused, accepted: Callable[..., str]
) -> None:
    line = [*words, "--set", "units=1", "--set", "growth.enabled=false", "--out", tmp_path / "run"]
    told = refused(*line)
    assert "The network is full: no edge is free for task '5-6-7-8-9'" in told
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [task["name"] for task in results["tasks"]] == ["0-1-2-3-4"]
    assert CheckpointFolder(tmp_path / "run" / "checkpoint").load().done == 1
    assert "Not finished: 1 task" in accepted("info", tmp_path / "run")
    assert refused(*line, "--resume") == told


# Words that make no sense ------------------------------------------------------------------------

OUT_OF_RANGE = {
    "epochs=0": "epochs is 0, but must be at least 1",
    "epochs=-3": "epochs is -3, but must be at least 1",
    "batch_size=0": "batch_size is 0, but must be at least 1",
    "lr=0": "lr is 0, but must be more than 0",
    "lr=-1": "lr is -1, but must be more than 0",
    "lr=inf": "lr is inf, but must be finite",
    "lr=nan": "lr is nan, but must be finite",
    "momentum=1": "momentum is 1, but must be below 1",
    "momentum=-0.1": "momentum is -0.1, but must be at least 0",
    "weight_decay=-1": "weight_decay is -1, but must be at least 0",
    "weight_decay=inf": "weight_decay is inf",
    "share=1.1": "competition.share is 1.1, but must be at most 1",
    "share=-0.1": "competition.share is -0.1, but must be at least 0",
    "growth.below=2": "growth.below is 2, but must be at most 1",
    "gradient_threshold=-1": "competition.gradient_threshold is -1, but must be at least 0",
    "temperature=0": "competition.temperature is 0, but must be more than 0",
    "temperature_end=-1": "competition.temperature_end is -1, but must be more than 0",
    "competition.lr=-1": "competition.lr is -1, but must be at least 0",
    "init_std=-1": "competition.init_std is -1, but must be at least 0",
    "prefer_free=-1": "competition.prefer_free is -1, but must be at least 0",
    "active=0": "competition.active is 0, but must be at least 1",
    "active_end=0": "competition.active_end is 0, but must be at least 1",
    "active_end=3": "competition.active goes from 1 to 3",
    "gating=fast": "competition.gating is 'fast'; use siblings, relaxed, gated or sparse",
    "competition.optimizer=lbfgs": "competition.optimizer is 'lbfgs'; use adam or sgd",
    "keep_gradients=some": "competition.keep_gradients is 'some'; use all, winner or threshold",
    "loss_over=all": "loss_over is 'all'; use task or seen",
    "protect=all": "protect is 'all'; use edges or none",
    "inherit=all": "inherit is 'all'; use previous or none",
    "growth.enabled=perhaps": "growth.enabled must be true or false, but is 'perhaps'",
    "per_example=true": "competition.per_example needs gating=relaxed, but gating is 'siblings'",
    "units=0": "units is 0, but must be at least 1",
    "widths=16-0": "widths is 0, but must be at least 1",
    "widths=-16,16": "widths is -16, but must be at least 1",
    "activation=tanh": "activation is 'tanh'; use relu or linear",
    "norm=layer": "norm is 'layer'; use batch, none or id",
    "init=zero": "init is 'zero'; use active or glorot",
    "tasks=3": "tasks is 3, but the ten digits split into 1, 2, 5 or 10",
    "class_order=odd": "class_order is 'odd'; use natural or seeded",
    "test_share=1.5": "test_share",
    "test_share=0": "test_share",
    "validation_share=-1": "validation_share",
    "validation_share=0": "validation_share",
    "epochs=two": "epochs must be a whole number, but is 'two'",
    "epochs=1.5": "epochs must be a whole number, but is '1.5'",
    "epochs=": "epochs must be a whole number, but is ''",
    "epochs=[1": "epochs must be a whole number, but is '[1'",
    "lr=fast": "lr must be a number, but is 'fast'",
    "per_example=maybe": "per_example must be true or false, but is 'maybe'",
    "widths=a-b": "widths must be a whole number, but is 'a-b'",
    "epoch=3": "There is no setting named 'epoch'; did you mean epochs",
    "zzz=3": "There is no setting named 'zzz'; known are ",
    "epochs": "'epochs' is no setting; write --set key=value",
    "=3": "'=3' is no setting; write --set key=value",
    "architecture=mpl": "There is no network named 'mpl'; did you mean mlp?",
    "architecture=nowhere:net": "The network 'nowhere:net' was not found",
    "architecture=:": "The network ':' ",
    "architecture=.here:net": "The network '.here:net' ",
    "units=3": "width 16 cannot be split into blocks of 3 units; use a width of 15 or 18",
    "units=32": "width 16 cannot be split into blocks of 32 units; use a width of 32",
    "widths=15-16": "width 15 cannot be split into blocks of 2 units; use a width of 14 or 16",
}


@pytest.mark.parametrize("change", OUT_OF_RANGE)
def test_settings_that_make_no_sense(
    change: str, tmp_path: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    told = refused(*words, "--set", change, "--out", tmp_path / "run")
    assert OUT_OF_RANGE[change] in told
    assert tree(tmp_path) == {}, "nothing is made before the settings are known to fit"


@pytest.mark.parametrize("method", list(methods))
@pytest.mark.parametrize("change", ["units=3", "architecture=mpl", "widths=16-15"])
def test_a_network_that_cannot_be_is_refused_before_anything_is_made(
    change: str, method: str, tmp_path: Path, words: list[str], refused: Refused, tree: Tree
) -> None:
    refused(*words, "--method", method, "--set", change, "--out", tmp_path / "run")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["run", "digit"], "There is no benchmark named 'digit'; did you mean digits"),
        (["run", "qqqqqqq"], "There is no benchmark named 'qqqqqqq'; known are "),
        (["run", "digits", "--method", "finetun"],
         "There is no method named 'finetun'; did you mean finetune"),
        (["run", "digits", "--preset", "papr"],
         "There is no preset of digits named 'papr'; did you mean paper?"),
        (["run", "digits", "--method", "finetune", "--set", "gating=sparse"],
         "There is no setting named 'gating'"),
        (["run", "digits", "--set", "network_size=both", "--method", "joint"],
         "use ticket or full"),
        (["run", "digits-permuted", "--set", "tasks=0"], "tasks is 0"),
        (["run", "digits", "--seed", "-1"], "seed is -1, but must not be negative"),
        (["run", "digits", "--seed", "x"], "Invalid value for '--seed'"),
        (["run", "digits", "--threads", "0"], "threads is 0, but must be at least 1"),
        (["run", "digits", "--save-every", "-1"], "save_every is -1.0"),
        (["run", "digits", "--save-every", "nan"], "save_every is nan"),
        (["run", "digits", "--data", "nowhere"], "nowhere is not a folder"),
        (["run", "digits", "--sett", "a=1"], "No such option: --sett"),
        (["run", "digits", "digits"], "unexpected extra argument"),
        (["run"], "Missing argument"),
        (["rnu"], "No such command 'rnu'"),
        (["--resume"], "No such option: --resume"),
        (["info"], "needs either the folder of a model"),
        (["info", "nowhere"], "There is no folder nowhere; make a model with `rivals learn"),
    ],
)  # fmt: skip
def test_words_that_make_no_sense(
    line: list[str], sentence: str, tmp_path: Path, refused: Refused, tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(*line)
    assert tree(tmp_path) == {}


def test_a_run_has_one_writer_and_a_killed_one_leaves_no_lock(
    folder: Path, words: list[str], refused: Refused, accepted: Callable[..., str], tree: Tree
) -> None:
    other = os.fork()
    if other == 0:  # a real process that holds the folder until it is killed
        lock = FolderLock(folder)
        time.sleep(60 if lock else 0)
        os._exit(0)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            FolderLock(folder).release()
            time.sleep(0.05)
        except RivalsError:
            break
    before = tree(folder)
    assert "Another process is at work" in refused(*words, "--out", folder, "--resume")
    assert tree(folder) == before
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    accepted(*words, "--out", folder, "--resume")
