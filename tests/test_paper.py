"""The presets of the paper: every value is the paper's, and the repaired one differs in two.

The table below is written from the paper, not from the recipes: section 4 and the appendix.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rivals.errors import Interrupted
from rivals.experiment.run_settings import RunSettings, points, presets, recipe, resolve
from rivals.experiment.start import prepare
from rivals.learn.twta import TWTA
from rivals.nn.alexnet import TABLE as ALEXNET_TABLE
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.resnet import TABLE as RESNET_TABLE
from rivals.seeds import Seed
from toys import TINY, lessons, make, shortened, steps_of, teach

FIVE = ("cifar100", "tiny-imagenet", "pmnist", "omniglot-rotation", "five-datasets")
ALL = (*FIVE, "digits", "digits-permuted")

# Section 4 and 2.4: the same for every benchmark.
RECIPE: dict[str, Any] = {
    "network.activation": "linear",  # "J competing linear units"
    "network.init": "glorot",  # "for both the network weights and log π Glorot Normal"
    "training.competition.init_std": 0.0,  # 0 stands for Glorot
    "training.competition.temperature": 0.67,
    "training.competition.temperature_end": 0.01,
    "training.competition.gating": "relaxed",  # Eq. 5
    "training.competition.share": 1.0,  # "a single full training cycle"
    "training.competition.contenders": 0,  # all units of a block
    "training.competition.optimizer": "sgd",
    "training.competition.prefer_free": 0.0,  # "π are initialized at random"
    "training.competition.keep_gradients": "all",
    "training.competition.per_example": False,  # ξ has no index of an example
    "training.lr": 0.1,
    "training.momentum": 0.0,
    "training.weight_decay": 0.0,
    "training.augmentation": "none",
    "training.epochs": 100,
    "training.batch_size": 40,
    "training.episodes.shots": 0,
    "training.protect": "none",  # W continues and nothing guards it
    "training.inherit": "none",
    "training.growth.enabled": False,
    "training.loss_over": "task",
    "network.units": 8,  # the row of the ablation whose accuracies the results repeat
}
NINE_TO_ONE = {"stream.split": "random_9_1", "stream.validation_share": 0.0}
# The appendix: networks, splits, classes in random order.
OWN: dict[str, dict[str, Any]] = {
    "cifar100": {
        **NINE_TO_ONE, "stream.class_order": "seeded",
        "network.architecture": "alexnet", "network.norm": "identity",
    },
    "tiny-imagenet": {
        **NINE_TO_ONE, "stream.class_order": "seeded", "stream.image_size": 64,
        "network.architecture": "resnet18", "network.norm": "batch",
    },
    "pmnist": {
        **NINE_TO_ONE, "stream.pad": 32,
        "network.architecture": "resnet18", "network.norm": "batch",
    },
    "omniglot-rotation": {
        "stream.split": "nine_to_one", "stream.validation_share": 0.0,
        "stream.class_order": "seeded",
        "network.architecture": "lenet", "network.norm": "identity",
    },
    "five-datasets": {
        **NINE_TO_ONE, "network.architecture": "resnet18", "network.norm": "batch",
    },
    "digits": {"network.architecture": "lenet", "network.norm": "identity"},
    "digits-permuted": {"network.architecture": "mlp", "network.norm": "identity"},
}  # fmt: skip
TASKS = {"cifar100": 10, "tiny-imagenet": 40, "pmnist": 20, "omniglot-rotation": 100,
         "five-datasets": 5}  # fmt: skip
SHOTS = {"cifar100": (10, 10), "pmnist": (10, 10), "five-datasets": (10, 10),
         "tiny-imagenet": (5, 5), "omniglot-rotation": (12, 10)}  # fmt: skip
REPLAYING = ("er", "gem", "icarl", "il2m", "der", "sparcl", "llt", "lamaml", "fsdgpm")
# Units of each layer of the text, and blocks of each layer of the tables for J = 2, 4, 8, 16, 32.
TEXT = {"alexnet": [64, 128, 256, 2048, 2048], "lenet": [16, 48, 400]}
TABLES = {
    "alexnet-table": {
        2: [8, 8, 8, 16, 64, 64], 4: [4, 4, 4, 8, 32, 32], 8: [2, 2, 2, 4, 16, 16],
        16: [1, 1, 1, 2, 8, 8], 32: [1, 1, 1, 1, 4, 4],
    },
    "resnet18-table": {
        2: [8, 8, 16, 16, 16], 4: [4, 4, 8, 8, 8], 8: [2, 2, 4, 4, 4],
        16: [1, 1, 2, 2, 2], 32: [1, 1, 1, 1, 1],
    },
}  # fmt: skip


def leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries by their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(f"{prefix}.{name}", inner)
    else:
        yield prefix, value


def flat(settings: RunSettings) -> dict[str, Any]:
    """Every setting by its path."""
    plain = settings.to_dict()
    return {
        path: value
        for group in ("stream", "network", "training")
        for path, value in leaves(group, plain[group])
    }


def differences(stream: str, one: str, other: str) -> dict[str, tuple[Any, Any]]:
    first, second = (flat(resolve(stream, preset=preset)) for preset in (one, other))
    assert first.keys() == second.keys()
    return {path: (first[path], second[path]) for path in first if first[path] != second[path]}


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ALL)
def test_the_preset_has_the_papers_values(stream: str) -> None:
    found = flat(resolve(stream, preset="paper"))
    expected = {**RECIPE, **OWN[stream]}
    assert {path: found[path] for path in expected} == expected


@pytest.mark.parametrize("stream", FIVE)
def test_the_letter_leaves_nothing_to_defaults_that_decides(stream: str) -> None:
    """A default that changes must not change what the paper's recipe means."""
    groups = recipe(stream, "paper", "twta")
    written = {path for group, values in groups.items() for path, _ in leaves(group, values)}
    assert set(RECIPE) | set(OWN[stream]) <= written


@pytest.mark.parametrize("stream", FIVE)
def test_buffers_and_queries_are_the_papers(stream: str) -> None:
    """Ten images a class, five on Tiny-ImageNet; 128 unlabelled pictures a query."""
    for method in REPLAYING:
        memory = resolve(stream, method, "paper").training.memory  # type: ignore[attr-defined]
        assert memory.counted_in == "class"
        assert memory.size == (5 if stream == "tiny-imagenet" else 10), method
    llt: Any = resolve(stream, "llt", "paper").training
    assert llt.distillation.neighbours == 128


@pytest.mark.parametrize("stream", FIVE)
def test_episodes_have_the_papers_ways_and_shots(stream: str) -> None:
    episodes = resolve(stream, preset="paper-episodic").training.episodes
    assert (episodes.ways, episodes.shots) == SHOTS[stream]
    changed = differences(stream, "paper", "paper-episodic")
    assert set(changed) == {"training.episodes.ways", "training.episodes.shots"}


@pytest.mark.parametrize(("name", "units"), [(n, u) for n in TABLES for u in TABLES[n]])
def test_networks_have_the_blocks_of_the_tables(name: str, units: int) -> None:
    settings = resolve("cifar100", overrides={"architecture": name, "units": units, "widths": ""})
    network = NetworkPlan(settings.network, (3, 32, 32)).rivals(Seed(0))
    blocks = [rivals.blocks for rivals in network.rivals()]
    if name == "alexnet-table":
        assert blocks == TABLES[name][units]
        assert [hasattr(layer, "kernel") for layer in network.layers()] == [True] * 4 + [False] * 2
    else:  # of a stage: its stream, and the first convolution of both of its residual blocks
        *stages, dense = TABLES[name][units]
        assert blocks == [count for count in stages for _ in range(3)] + [dense]
        convolutions = [layer for layer in network.layers() if getattr(layer, "kernel", 0) == 3]
        assert len(convolutions) == 1 + 4 * 4


@pytest.mark.parametrize("name", list(TEXT))
def test_networks_have_the_widths_of_the_text(name: str) -> None:
    stream = "cifar100" if name == "alexnet" else "omniglot-rotation"
    shape = (3, 32, 32) if name == "alexnet" else (1, 32, 32)
    network = NetworkPlan(resolve(stream, preset="paper").network, shape).rivals(Seed(0))
    assert [layer.rivals.count for layer in network.layers()] == TEXT[name]


def test_wide_rows_of_the_tables_are_those_of_32_rivals() -> None:
    """The tables have one block of 32 where the others have 16 maps: I · J is not constant."""
    assert set(ALEXNET_TABLE) == set(RESNET_TABLE) == {32}


def test_the_network_of_the_text_is_the_original_with_its_batch_norm() -> None:
    network = NetworkPlan(resolve("pmnist", preset="paper").network, (1, 32, 32)).rivals(Seed(0))
    widths = [layer.rivals.count for layer in network.layers() if getattr(layer, "kernel", 0) == 3]
    assert widths == [64, *[64] * 4, *[128] * 4, *[256] * 4, *[512] * 4]
    assert network.layers()[-1].rivals.count == 512
    assert {layer.norm.kind for layer in network.layers()} == {"batch"}


@pytest.mark.parametrize("stream", ["cifar100", "tiny-imagenet", "pmnist", "five-datasets"])
def test_the_table_preset_changes_the_network_alone(stream: str) -> None:
    changed = differences(stream, "paper", "paper-table")
    assert set(changed) == {"network.architecture"}
    text, table = changed["network.architecture"]
    assert table == f"{text}-table"


def test_units_without_norm_compute_equation_1_and_nothing_else() -> None:
    """No bias: after training a ticket's layers are W x, and the head alone has one."""
    method = make(
        network={**TINY, "activation": "linear", "norm": "identity"}, epochs=2, share=1.0,
        gating="relaxed", protect="none", contenders=0, inherit="none", enabled=False,
    )  # fmt: skip
    lesson = lessons(1)[0]
    teach(method, lesson.task)
    ticket = method.ticket(lesson.task.name)
    layers = [module for module in ticket.modules() if isinstance(module, torch.nn.Linear)]
    assert len(layers) == 3
    assert all(not layer.bias.any() for layer in layers[:-1])
    assert layers[-1].bias.any()
    biased = make(network={**TINY, "activation": "linear", "norm": "none"}, epochs=2)
    teach(biased, lesson.task)
    some = next(m for m in biased.ticket(lesson.task.name).modules() if hasattr(m, "bias"))
    assert some.bias.any()


# Repairs ------------------------------------------------------------------------------------------

REPAIRS = {
    "network.init": ("glorot", "active"),
    "training.competition.optimizer": ("sgd", "adam"),
}


@pytest.mark.parametrize("stream", ALL)
def test_the_repaired_preset_differs_in_two_settings(stream: str) -> None:
    assert differences(stream, "paper", "paper-repaired") == REPAIRS
    repaired: Any = resolve(stream, preset="paper-repaired").training
    assert repaired.competition.lr == 0.1
    assert repaired.protect == "none"


@pytest.mark.parametrize("stream", ALL)
def test_gated_is_a_variant_of_it(stream: str) -> None:
    assert "gated" in points()
    changed = differences(stream, "paper-repaired", "paper-repaired+gated")
    assert changed == {"training.competition.gating": ("relaxed", "gated")}


@pytest.mark.parametrize("stream", FIVE)
def test_every_benchmark_has_the_presets(stream: str) -> None:
    assert {"paper", "paper-repaired", "paper-episodic"} <= set(presets(stream))


@pytest.mark.parametrize("stream", ["cifar100", "omniglot-rotation", "pmnist"])
def test_the_native_control_has_the_tickets_shape_and_the_same_recipe(stream: str) -> None:
    ours, native = (resolve(stream, m, "paper-repaired") for m in ("twta", "independent"))
    shape = (3, 32, 32) if stream == "cifar100" else (1, 32, 32)
    plan, same = NetworkPlan(ours.network, shape), NetworkPlan(native.network, shape)
    assert native.training.network_size == "ticket"  # type: ignore[attr-defined]
    for name in ("epochs", "batch_size", "lr", "momentum", "weight_decay", "augmentation"):
        assert getattr(ours.training, name) == getattr(native.training, name)
    plain = same.dense(Seed(0), "ticket").shared_parameters()
    blocks = [layer.rivals.blocks for layer in plan.rivals(Seed(0)).layers()]
    rows = [len(weight) for weight in plain if weight.dim() in (2, 4)]
    assert rows == blocks


# Runs ---------------------------------------------------------------------------------------------

SHORT = {"epochs": 3, "tasks": 2, "batch_size": 120, "widths": "8-16-32"}


def run_of(folder: Path, preset: str, asked_to_stop: Any = None, **changes: Any) -> dict[str, Any]:
    settings = resolve("digits", preset=preset, overrides={**SHORT, **changes})
    resume = folder.exists()
    options = {"asked_to_stop": asked_to_stop} if asked_to_stop else {}
    prepare(settings, folder, resume, save_every=1e9, **options).go()
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


@pytest.mark.parametrize("preset", ["paper", "paper-repaired", "paper-repaired+gated"])
def test_results_hold_what_the_competition_did(preset: str, tmp_path: Path) -> None:
    results = run_of(tmp_path / "run", preset)
    for task in results["tasks"]:
        start, end = task["entropy"]
        assert start == pytest.approx(2.0, abs=0.12)  # log 8 = 2.08, less what Glorot brings
        if preset == "paper":
            assert end == pytest.approx(start, abs=0.01), "by SGD, posteriors hardly move"
        else:
            assert end < start - 0.05, "by Adam, they learn"
            assert task["winners_changed"] > 0
        assert 0 <= task["winners_changed"] <= 1
        assert 0 < task["gradient_density"] <= 1


def test_a_run_of_the_repaired_paper_goes_on_to_the_same_bits(tmp_path: Path, outcome: Any) -> None:
    for preset in ("paper-repaired", "paper-repaired+gated"):
        changes = {"keep_gradients": "winner"}
        run_of(tmp_path / preset / "whole", preset, **changes)
        folder, stops = tmp_path / preset / "stopped", 0
        while True:
            questions = iter(range(1000))
            try:
                run_of(folder, preset, lambda asked=questions: next(asked) == 1, **changes)
                break
            except Interrupted:
                stops += 1
        assert stops > 5
        assert outcome(folder) == outcome(tmp_path / preset / "whole")


# Sparse gradients, the paper's second contribution --------------------------------------------


def density(preset: str, folder: Path, **changes: Any) -> float:
    results = run_of(folder, preset, **changes)
    found: float = results["tasks"][0]["gradient_density"]
    return found


@pytest.mark.parametrize("preset", ["paper-repaired", "paper-repaired+gated"])
def test_the_density_of_the_gradient_is_what_was_kept(preset: str, tmp_path: Path) -> None:
    everything = density(preset, tmp_path / "all")
    assert everything > 0.9 if preset == "paper-repaired" else everything > 0.1
    winners = density(preset, tmp_path / "winner", keep_gradients="winner")
    assert winners <= 1 / 8 + 1e-6, "one unit of eight"
    none = {"keep_gradients": "threshold", "gradient_threshold": 0.0}
    assert density(preset, tmp_path / "zero", **none) == pytest.approx(everything, abs=0.02)
    some = {"keep_gradients": "threshold", "gradient_threshold": 0.125}
    assert 0 < density(preset, tmp_path / "some", **some) < 0.8 * everything


@pytest.mark.parametrize("keep", ["winner", "threshold"])
def test_units_whose_gradient_is_dropped_stay_where_they_are(keep: str) -> None:
    """With weight decay, too."""
    method = make(
        gating="relaxed", keep_gradients=keep, share=1.0, epochs=1, init_std=1.0, contenders=0,
        gradient_threshold=0.25, weight_decay=0.1, prefer_free=0.0,
    )  # fmt: skip
    assert isinstance(method, TWTA)
    task = shortened(lessons(1)[0].task, 40)
    method.start(task)
    before = [layer.training_copy.values.clone() for layer in method.network.layers()]
    kept = [
        torch.softmax(r.posteriors[task.name].detach(), 1).T.flatten() >= 0.25
        for r in method.network.rivals()
    ]
    steps_of(method, task)  # a single step
    for layer, old, mask in zip(method.network.layers(), before, kept, strict=True):
        moved = (layer.training_copy.values != old).flatten(1).any(1)
        if keep == "threshold":
            assert torch.equal(moved, mask)
            assert 0 < int(moved.sum()) < len(moved)
        else:
            assert (moved.view(4, -1).sum(0) == 1).all()


@pytest.mark.parametrize("keep", ["all", "winner", "threshold"])
def test_siblings_keep_the_gradient_of_the_unit_that_was_drawn(keep: str) -> None:
    """One unit of a block is computed, so the winner's gradient is all there is."""
    method = make(
        gating="siblings", keep_gradients=keep, share=1.0, epochs=1, init_std=1.0, contenders=0,
        gradient_threshold=0.25, prefer_free=0.0, weight_decay=0.1,
    )  # fmt: skip
    assert isinstance(method, TWTA)
    task = shortened(lessons(1)[0].task, 40)
    method.start(task)
    shared = [layer.training_copy.values.clone() for layer in method.network.layers()]
    posteriors = [
        torch.softmax(r.posteriors[task.name].detach(), 1) for r in method.network.rivals()
    ]
    drawn: list[torch.Tensor] = []
    adjust = method.adjust_gradients

    def watch(batch: Any) -> None:
        assert method.selection is not None
        drawn[:] = [method.selection.active(rivals).ids for rivals in method.network.rivals()]
        adjust(batch)

    method.adjust_gradients = watch  # type: ignore[method-assign]
    steps_of(method, task)
    for layer, old, posterior, ids in zip(
        method.network.layers(), shared, posteriors, drawn, strict=True
    ):
        moved = (layer.training_copy.values != old).flatten(1).any(1)
        likely = posterior.T.flatten()[ids] >= 0.25
        expected = likely if keep == "threshold" else torch.ones_like(likely)
        assert torch.equal(moved, expected)
    assert method.density[0] > 0


# The document ------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent


def claims() -> list[dict[str, str]]:
    with (ROOT / "docs" / "paper-claims.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", claims(), ids=lambda row: row["the paper says"][:40])
def test_every_claim_names_code_and_a_test_that_are_there(row: dict[str, str]) -> None:
    assert all(row.values()), "no cell is empty; what was not measured says so"
    assert row["kind"] in ("claim", "detail")
    file, _, name = row["test"].partition("::")
    assert f"def {name}" in (ROOT / file).read_text()
    package = ROOT / "src" / "rivals"
    for word in re.findall(r"[\w*-]+(?:/[\w*.-]+)+\.(?:py|yaml)", row["implemented"]):
        assert list(package.glob(word)), word
    commands = re.findall(r"benchmarks/[\w-]+\.\w+", row["measured"])
    assert all((ROOT / command).exists() for command in commands)


def test_claims_cover_the_paper() -> None:
    kinds = [row["kind"] for row in claims()]
    assert kinds.count("claim") > 15
    assert kinds.count("detail") > 25
