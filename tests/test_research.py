"""What research asks about: variants are TWTA where nothing is changed, and learn where it is."""

import sys
from pathlib import Path

import pytest
import torch

from rivals.learn.state import StatePart
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.selection import Masked
from rivals.seeds import Seed
from toys import accuracy, lessons, make, same_bits, steps_of, teach, ticket_bits

RESEARCH = Path(__file__).parents[1] / "benchmarks" / "research"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(RESEARCH)
    yield
    for path in RESEARCH.glob("*.py"):
        sys.modules.pop(path.stem, None)


def taught(method, count=3, **settings):
    made = make(method, epochs=6, **settings)
    for lesson in lessons(count):
        teach(made, lesson.task)
    return made


VARIANTS = [
    ("ancestry:Ancestry", {"from_whom": "probe"}),
    ("ancestry:Ancestry", {"from_whom": "moving"}),
    ("ancestry:Ancestry", {"from_whom": "blocks"}),
    ("ancestry:Ancestry", {"from_whom": "drawn"}),
    ("beyond_the_task:Rehearsing", {"kept": 4}),
    ("harder:Harder", {"erased": 2, "mixed": 0.2, "tinted": 0.1, "dropped": 0.1}),
]


@pytest.mark.parametrize(("method", "settings"), VARIANTS)
def test_a_variant_learns_and_forgets_nothing(method, settings):
    made, found, before = make(method, epochs=8, **settings), lessons(3), {}
    for lesson in found:
        teach(made, lesson.task)
        assert accuracy(made, lesson) > 85
        before[lesson.task.name] = ticket_bits(made, lesson.task.name)
    for name, bits in before.items():
        assert same_bits(bits, ticket_bits(made, name))
    assert not same_bits(before[lesson.task.name], ticket_bits(taught("twta"), lesson.task.name))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ancestry:Ancestry", {}),
        ("ancestry:Ancestry", {"from_whom": "moving", "share": 1.0}),
        ("harder:Harder", {}),
    ],
)
def test_where_nothing_is_changed_a_variant_is_twta(method, settings):
    last = lessons(3)[-1].task.name
    assert same_bits(
        ticket_bits(taught(method, **settings), last), ticket_bits(taught("twta"), last)
    )


@pytest.mark.parametrize(("method", "settings"), VARIANTS)
def test_a_variant_that_was_stopped_goes_on_to_the_same_bits(method, settings):
    first, second = lessons(2)
    whole, cut = (teach(make(method, epochs=4, **settings), first.task) for _ in range(2))
    teach(whole, second.task)
    cut.start(second.task)
    steps = iter(range(5))

    def stop(step):
        if next(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut.learn(second.task, stop)
    again = make(method, epochs=4, **settings)
    again.load(copied(cut.state()))
    steps_of(again, second.task)
    again.finish(second.task)
    name = second.task.name
    assert same_bits(ticket_bits(again, name), ticket_bits(whole, name))


def copied(state):
    """As a checkpoint would give it back."""
    return {
        name: StatePart({key: t.detach().clone() for key, t in part.tensors.items()}, part.facts)
        for name, part in state.items()
    }


def test_a_probe_finds_the_ancestor_that_knows_the_classes():
    first, second, third = lessons(3)
    made = make("ancestry:Ancestry", epochs=8, from_whom="probe", inherit="none")
    for lesson in (first, second, third):
        teach(made, lesson.task)
    assert made.ancestor(first.task) == first.task.name
    assert made.ancestor(third.task) == third.task.name


@pytest.mark.parametrize("name", ["pairs", "pointwise", "residual", "untied", "leaky"])
def test_a_shape_gives_tickets(name):
    shape = {"architecture": f"shapes:{name}", "widths": (8, 8, 16), "units": 4}
    made = make(network=shape, epochs=1)
    lesson = lessons(1)[0]
    teach(made, lesson.task)
    images = lesson.task.preprocessing(lesson.test.images)
    network = made.network.eval()
    task = lesson.task.name
    with torch.no_grad():
        plain = network.cut(task)(images)
        assert torch.allclose(plain, network(images, task), atol=1e-4)
        masked = torch.allclose(plain, network(images, task, Masked(task)), atol=1e-4)
    # Where a stage is not tied its identity path lands on other units, and only a cut adds it up.
    assert masked == (name != "untied")
    native = NetworkPlan(NetworkSettings(**shape), (1, 8, 8)).dense(Seed(0), "ticket")
    assert len(native.layers()) == len(network.layers())


def test_a_run_is_made_once_whoever_asks_for_it(tmp_path):
    import ask

    question = {"benchmark": "digits", "preset": "default", "set": {"tasks": 2, "epochs": 1}}
    once = ask.run(question, {"method": "chain"}, 3, tmp_path)
    (folder,) = tmp_path.iterdir()
    made = (folder / "results.json").stat().st_mtime_ns
    other = {**question, "set": {"epochs": 1}}
    assert ask.run(other, {"tasks": 2, "method": "chain"}, 3, tmp_path) == once
    assert (folder / "results.json").stat().st_mtime_ns == made
    ask.run(question, {"method": "chain"}, 4, tmp_path)
    ask.run(question, {}, 3, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
