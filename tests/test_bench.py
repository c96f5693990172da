"""The benchmark: every row is there and says what it should; no test here looks at a clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from rivals.cli import bench_command as verb
from rivals.errors import RivalsError
from rivals.experiment.bench import bench_deploy as deploy
from rivals.experiment.bench import bench_edge as edge
from rivals.experiment.bench import bench_load as load
from rivals.experiment.bench import bench_memory as memory
from rivals.experiment.bench import growth, probe, suites
from rivals.experiment.bench.bench_row import Row, at_least, at_most, number
from rivals.experiment.bench.bench_sizes import TINY, Sizes
from rivals.experiment.bench.machine import machine
from rivals.experiment.bench.timing import Times, fastest, interleave, quartiles, ratio

NAMES = {
    "train": {
        "settled-step", "competing-step", "relaxed-step", "siblings-step", "siblings-step-later",
        "task-alexnet", "task-resnet18", "loop",
    },
    "memory": {
        "memory-alexnet-stored", "memory-alexnet-generated", "memory-resnet18-stored",
        "memory-resnet18-generated", "memory-siblings", "memory-siblings-later", "wide-network",
    },
    "tickets": {
        "ticket-alexnet-batch-1", "ticket-alexnet-batch-40", "ticket-alexnet-disk",
        "ticket-resnet18-batch-1", "ticket-resnet18-batch-40", "ticket-resnet18-disk",
        "task-bytes", "winner-bits", "infer-task",
    },
    "growth": {
        "growth-settled-step", "growth-competing-step", "growth-memory", "growth-open-task",
    },
    "load": {"load-batches"},
    "deploy": {
        "deploy-latency", "deploy-file", "deploy-runner-memory", "deploy-parity",
        "deploy-int8-agreement", "deploy-int8-lost", "deploy-flash",
        *(
            f"deploy-{what}-{runtime}-{kind}"
            for what in ("us", "bytes", "mb")
            for runtime in ("torch", "onnx", "ort", "onnx-int8", "c")
            for kind in ("ticket", "native", "dense")
        ),
    },
    "edge": {
        *(f"edge-{what}-numpy" for what in ("learn-seconds", "learn-memory", "answer-ms")),
        "edge-answer-memory-numpy", "edge-bytes-numpy", "edge-accuracy-after-1-numpy",
        *(f"edge-weights-mlperf-{what}" for what in edge.REFERENCES),
    },
    "serve": {
        *(f"serve-{what}-{clients}" for what in ("rate", "p50", "p99") for clients in (1, 8)),
        "serve-memory", "serve-burst", "serve-burst-refused",
    },
}  # fmt: skip
ZERO = {"deploy-parity", "deploy-int8-lost", "serve-burst-refused"}  # may be nothing at all
MEASURES = {"memory": probe.memory, "growth": growth.stored, "load": load.load}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process what has a process of its own otherwise."""

    def ask(what: str, sizes: Sizes, **options: object) -> object:
        return json.loads(json.dumps(MEASURES[what](sizes, **options)))

    for module in (memory, growth, load):
        monkeypatch.setattr(module, "ask", ask)
    resident = deploy.resident

    def once(path: Path, code: str) -> int:
        """One real process is enough for a test."""
        return resident(path, code) if path.name == "onnx-ticket.onnx" else 1

    monkeypatch.setattr(deploy, "resident", once)
    numpy = {"numpy": edge.PROGRAMS["numpy"]}  # the others take ten times as long to start
    monkeypatch.setattr(edge, "PROGRAMS", numpy)
    monkeypatch.setattr(edge, "c_rows", lambda lessons: iter(()))  # tests/test_teachable.py
    monkeypatch.delenv("RIVALS_DATA", raising=False)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("suite", list(NAMES))
def test_every_row_of_a_suite_has_its_fields(suite: str) -> None:
    if suite == "deploy":
        pytest.importorskip("onnxruntime", reason="the runtimes come with rivals[export,c]")
        pytest.importorskip("emx_onnx_cgen", reason="C comes with rivals[c]")
    if suite == "serve":
        pytest.importorskip("fastapi", reason="the server comes with rivals[web]")
    rows = list(suites.measure(suite, 2, TINY))
    heavy = ("litert", "executorch")  # measured where they are installed
    assert {row.name for row in rows if not any(h in row.name for h in heavy)} == NAMES[suite]
    for row in rows:
        facts = json.loads(json.dumps(row.to_dict()))
        assert facts["suite"] == suite
        assert facts["value"] > 0 or row.unit == "bytes" or row.name in ZERO, row.name
        assert facts["unit"]
        assert facts["how"]
        assert (facts["target"] is None) == (facts["met"] is None)
        if facts["spread"] is not None:
            assert 0 < facts["spread"][0] <= facts["spread"][1]


def test_all_stands_for_every_suite() -> None:
    assert suites.chosen("all") == list(NAMES)


def test_an_unknown_suite_is_answered_with_the_nearest() -> None:
    with pytest.raises(RivalsError, match="no suite named 'trian'; did you mean train"):
        suites.measure("trian", 2)
    with pytest.raises(RivalsError, match="repeat is 0"):
        suites.measure("train", 0)


def test_a_target_is_met_on_its_side() -> None:
    assert at_most(1.1).met(1.1)
    assert not at_most(1.1).met(1.11)
    assert at_least(6).met(6)
    assert not at_least(6).met(5.9)
    assert Row("x", 2.0, "s", None, "").met is None
    assert str(at_most(1 / 7)) == "≤ 0.143"
    assert [number(value) for value in (0, 1.05, 12.34, 1234)] == ["0.00", "1.05", "12.3", "1,234"]


def test_variants_take_turns_and_ratios_are_of_neighbours() -> None:
    order: list[str] = []
    times = interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert {len(t.seconds) for t in times.values()} == {3}
    found = ratio(Times([2.0, 4.0, 60.0]), Times([1.0, 2.0, 20.0]))
    assert found.value == 2.0
    assert found.spread == (2.0, 2.5)
    assert quartiles([3.0]) == (3.0, 3.0)
    both = {"dense x": Times([2.0]), "dense y": Times([1.0]), "other": Times([0.5])}
    assert fastest(both, "dense") is both["dense y"]


def test_the_machine_is_named() -> None:
    assert {"cpu", "cores", "torch", "threads"} <= set(machine())


def test_the_verb_prints_a_table_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("settled-step", 1.25, "× native", at_most(1.1), "AlexNet", (1.2, 1.3), "train")
    monkeypatch.setattr(suites, "measure", lambda suite, repeat: iter([row]))
    app = typer.Typer()
    app.command()(verb.bench)
    shown = CliRunner().invoke(app, ["--suite", "train"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0
    assert all(word in shown.stdout for word in ("settled-step", "1.25", "1.20–1.30", "≤ 1.10"))
    printed = CliRunner().invoke(app, ["--suite", "train", "--json"])
    content = json.loads(printed.stdout)
    assert content["machine"]["threads"] == 1
    assert content["rows"] == [row.to_dict()]
    assert content["rows"][0]["met"] is False


def test_no_name_is_cut_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of different kinds looked alike: edge-accuracy-after-…"""
    names = ["edge-instructions-answer-c-int8", "edge-instructions-learn-c-int8"]
    rows = [Row(name, 1168.0, "million", at_most(1.2), "", (1168, 1221)) for name in names]
    verb.show(Console(width=80), {**machine(), "threads": 1}, rows)
    lines = capsys.readouterr().out.splitlines()
    for name in names:
        (shown,) = [line for line in lines if line.startswith(f" {name} ")]
        assert shown.split()[1:] == ["1,168", "1,168–1,221", "million", "≤", "1.20", "no"]


def test_extra_memory_is_measured_in_a_process_of_its_own() -> None:
    found = probe.ask("memory", TINY, network="alexnet", kind="generated")
    assert found["bytes"] > 0
    with pytest.raises(RivalsError, match="The process that measures memory ended with 1"):
        probe.ask("memory", TINY, network="nowhere", kind="native")


CRASH = """
import torch
from rivals.experiment.bench.noise_stream import noise_task
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.streams.task import Batch

torch.set_num_threads(1)
settings = NetworkSettings(architecture="resnet-small", widths=(64, 128, 64), units=8)
plan = NetworkPlan(settings, (3, 64, 64))
images = torch.randn(8, 3, 64, 64).contiguous(memory_format=torch.channels_last)
labels = torch.arange(8) % 2
for size in ("ticket", "full"):
    network = plan.dense(Seed(0), size)
    network.add("one", 2)
    torch.nn.functional.cross_entropy(network.train()(images, "one"), labels).backward()
for way, compete in (("sparse", 1.0), ("relaxed", 1.0), ("sparse", 0.0)):
    cls = methods["twta"]
    words = {"epochs": 1, "batch_size": 8, "gating": way, "share": compete}
    method = cls(plan, cls.settings_class.from_paths(words), Seed(0))
    task = noise_task((3, 64, 64), 16, 2)
    method.start(task)
    batch = Batch(images, labels, task.name, labels, images)
    for _ in range(2):
        method.before_step(batch)
        method.step(batch)
        method.position.step += 1
    method.finish(task)
    method.ticket(task.name)(images)
print("alive")
"""


def test_the_crash_of_torch_cannot_happen_to_our_networks() -> None:
    """A strided 1×1 convolution, 8 → 16 channels at 64×64, channels last, ends torch 2.13."""
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "alive"
