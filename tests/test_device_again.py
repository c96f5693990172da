"""More pictures of a known task: it gets better, the others keep every bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rivals.model.folder import ModelFolder
from rivals.model.model import Model
from rivals.naming import gaussian
from teaching import asked, folder, marks, teach

Tree = Callable[[Path], dict[str, str]]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that learned a task from few pictures, between two others. Only to be copied."""
    place = tmp_path_factory.mktemp("again")
    for name, classes, count in (("a", (0, 1), 20), ("few", (3, 5, 8, 9), 5), ("c", (6, 7), 20)):
        teach(folder(place / name, classes, count), place / "model", epochs=10)
    folder(place / "more" / "few", (3, 5, 8, 9), 80, first=5)
    return place


def right(model: Path, task: str) -> float:
    """The share of digits that nobody learned from, which the task gets right."""
    classes = tuple(int(name.split()[1]) for name in ModelFolder.open(model).task(task).classes)
    new = asked(classes)
    answers = Model(model).predict([picture for picture, _ in new], task)
    same = [a.label == f"digit {label}" for a, (_, label) in zip(answers, new, strict=True)]
    return sum(same) / len(same)


def test_it_gets_better_and_the_others_stay(taught: Path) -> None:
    model = taught / "model"
    before, score = marks(model), right(model, "few")
    facts = ModelFolder.open(model).task("few")
    learned = teach(taught / "more" / "few", model, again=True, epochs=20)
    after = marks(model)
    assert learned.kept
    assert learned.before is not None
    assert learned.facts.accuracy >= learned.before
    assert right(model, "few") > score + 0.05
    assert after["few"] != before["few"]
    assert {n: after[n] for n in ("a", "c")} == {n: before[n] for n in ("a", "c")}
    refined = ModelFolder.open(model).task("few")
    assert refined.refined == 1
    assert refined.images == facts.images + learned.facts.images - facts.images
    assert [task.name for task in ModelFolder.open(model).tasks] == ["a", "few", "c"]


def test_what_makes_it_worse_is_not_kept(taught: Path, tree: Tree, tmp_path: Path) -> None:
    """Pictures whose classes are exchanged: the ticket is good, the lesson is not."""
    model, wrong = tmp_path / "model", folder(tmp_path / "a", (0, 1), 30)
    teach(wrong, model, epochs=20)
    before = tree(model)
    more = folder(tmp_path / "more" / "a", (0, 1), 3, first=100)
    learned = teach(more, model, again=True, epochs=1, augmentation="none")
    if learned.kept:  # three pictures may do no harm
        assert learned.facts.accuracy >= (learned.before or 0)
    else:
        assert tree(model) == before


def test_densities_are_joined() -> None:
    torch.manual_seed(0)
    mix = torch.randn(40, 40) / 6
    one, other = torch.randn(3000, 40) @ mix, torch.randn(1000, 40) @ mix + 0.3
    apart = [gaussian.fit(rows, torch.zeros(len(rows))) for rows in (one, other)]
    joined = gaussian.join(*apart, share=0.25)
    both = torch.cat([one, other])
    whole = gaussian.fit(both, torch.zeros(4000))
    a, b = (gaussian.log_density(both, kept) for kept in (joined, whole))
    assert torch.allclose(joined["means"], whole["means"], atol=1e-5)
    assert float((a - b).abs().mean()) < 0.5
    assert {k: v.shape for k, v in joined.items()} == {k: v.shape for k, v in whole.items()}
