"""The contract, over every registered method."""

import copy
import inspect
import re
import sys

import pytest
import torch

import rivals
from rivals.baselines.lookahead import split
from rivals.errors import RivalsError
from rivals.experiment import evaluation as evaluate
from rivals.learn.method import Method, methods
from rivals.learn.training_settings import TrainingSettings
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.registry import imports_allowed
from rivals.seeds import Seed
from rivals.settings import leaves
from rivals.streams.batching import epoch
from rivals.streams.stream import StreamItem
from rivals.streams.task import Examples, Task
from toys import (
    FROZEN,
    TINY,
    accuracy,
    lessons,
    make,
    same_bits,
    shortened,
    steps_of,
    teach,
    ticket_bits,
)

ALL = list(methods)
BASELINES = [name for name in ALL if name not in ("twta", "random-ticket")]
EPOCHS = {"lamaml": 4, "fsdgpm": 6}  # they look ahead: a step of theirs takes as long as many


@pytest.mark.parametrize("name", ALL)
def test_learns_a_stream_and_keeps_its_classes(name):
    method = make(name, epochs=EPOCHS.get(name, 8))
    found = lessons(3)
    for lesson in found:
        teach(method, lesson.task)
        assert accuracy(method, lesson) > (60 if name == "ncm" else 90)  # its features are others'
    for lesson in found:
        assert method.known[lesson.task.name].classes == lesson.task.classes
        prediction = method.predict(lesson.test.images[:7], lesson.task.name)
        assert prediction.tasks == (lesson.task.name,)
        assert prediction.label.max() < len(lesson.task.classes)


@pytest.mark.parametrize("name", ALL)
def test_without_a_task_it_names_one(name):
    method = make(name, epochs=1)
    for lesson in lessons(2):
        teach(method, lesson.task)
    prediction = method.predict(lesson.test.images, None)
    assert prediction.tasks == tuple(method.known)
    assert set(prediction.task.tolist()) <= {0, 1}
    assert ((prediction.confidence > 0) & (prediction.confidence <= 1)).all()


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_bits_and_another_gives_others(name):
    def learned(seed):
        method = make(name, seed=seed, epochs=1)
        for lesson in lessons(2):
            teach(method, shortened(lesson.task, 130))
        return ticket_bits(method, lesson.task.name)

    one, again, other = learned(1), learned(1), learned(2)
    assert same_bits(one, again)
    assert not same_bits(one, other)


@pytest.mark.parametrize("name", ALL)
def test_the_ticket_predicts_what_the_method_predicts(name):
    method = make(name, epochs=2)
    lesson = lessons(1)[0]
    teach(method, lesson.task)
    images = lesson.task.preprocessing(lesson.test.images)
    with torch.no_grad():
        plain = method.ticket(lesson.task.name)(images)
        assert torch.allclose(plain, method.logits(images, lesson.task.name), atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_a_state_taken_at_any_step_goes_on_to_the_same_bits(name):
    found = lessons(2)
    more = {"batch_size": 20} if name in FROZEN else {}  # one pass is all that they take

    def learn(method, task, stop=None):
        class EnoughError(Exception):
            pass

        def watch(step):
            if method.position.step == stop:
                raise EnoughError

        try:
            steps_of(method, task, watch)
        except EnoughError:
            return False
        method.finish(task)
        return True

    whole = make(name, **more)
    for lesson in found:
        teach(whole, lesson.task)
    begun = teach(make(name, **more), found[0].task)
    for stop in (1, 3, 5, 8):
        halted = make(name, **more)
        halted.load(copy.deepcopy(begun.state()))
        halted.start(found[1].task)
        assert not learn(halted, found[1].task, stop)
        resumed = make(name, **more)
        resumed.load(halted.state())
        assert learn(resumed, found[1].task)
        for lesson in found:
            task = lesson.task.name
            assert same_bits(ticket_bits(whole, task), ticket_bits(resumed, task))
        assert resumed.spent == whole.spent


@pytest.mark.parametrize("name", ALL)
def test_awkward_tasks_are_survived(name):
    task = lessons(1)[0].task
    pixels, labels = task.train.images, task.train.labels

    def with_train(label, index, relabel=lambda y: y):
        train = Examples(pixels[index], relabel(labels[index]))
        return Task(label, task.classes, train, task.validation, task.preprocessing)

    ones = torch.nonzero(labels == 1).flatten()
    awkward = [
        Task("one class", ("1",), Examples(pixels[ones], labels[ones] * 0), task.validation,
             task.preprocessing),
        with_train("one batch", torch.arange(10)),
        with_train("last batch of one", torch.arange(41)),
        with_train("one image", torch.arange(1)),
        with_train("sorted labels", labels.argsort()),
        with_train("labels swapped", torch.arange(80), lambda y: 1 - y),
        with_train("a name / with % signs. and ünïcode", torch.arange(60)),
    ]  # fmt: skip
    method = make(name, epochs=1)
    for each in awkward:
        teach(method, each)
        assert torch.isfinite(method.logits(task.preprocessing(pixels[:4]), each.name)).all()
    other = make(name, epochs=1)
    other.load(method.state())
    for each in awkward:
        assert same_bits(ticket_bits(method, each.name), ticket_bits(other, each.name))


class Untouchable(Examples):
    """Test data that only the evaluator may open."""

    def __getattribute__(self, name):
        if name in ("images", "labels"):
            frames = [sys._getframe(depth).f_code for depth in (1, 2, 3)]
            callers = [frame.co_name for frame in frames]
            assert any("evaluation" in frame.co_filename for frame in frames), callers
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", ALL)
def test_methods_never_see_test_data_nor_the_length_of_the_stream(name):
    method = make(name, epochs=1)
    for found in lessons(2):
        lesson = StreamItem(found.task, Untouchable(found.test.images, found.test.labels))
        teach(method, lesson.task)  # a method is handed the task, and a task has no test data
        assert not hasattr(lesson.task, "test")
        assert 0 <= evaluate.known(method, lesson) <= 100
    source = inspect.getsource(type(method))
    assert not re.search(r"\blength\b", source)
    assert ".test" not in source


@pytest.mark.parametrize("name", ALL)
def test_footprint_and_flops_are_counted(name):
    method = make(name, epochs=1)
    for lesson in lessons(2):
        teach(method, lesson.task)
        assert method.spent > 0
    footprint = method.footprint()
    assert sum(footprint.values()) > 0
    assert all(isinstance(count, int) for count in footprint.values())
    assert method.full_weights() >= sum(
        p.numel() for p in method.ticket(lesson.task.name).parameters()
    )


@pytest.mark.parametrize("name", BASELINES)
def test_every_tensor_of_a_step_is_on_the_device_of_the_method(name):
    """The meta device has no values: a tensor left on the CPU, or a look at a value, raises."""
    one, two = (shortened(lesson.task, 60) for lesson in lessons(2))
    begun = make(name, epochs=1)
    teach(begun, one)
    begun.start(two)
    meta = torch.device("meta")
    plan = NetworkPlan(NetworkSettings(**TINY), (1, 8, 8), meta)
    method = methods[name](plan, begun.settings, Seed(0))
    method.load(begun.state())
    batch = next(epoch(method.training_set(two), method.settings.batching, Seed(0))).to(meta)
    method.before_step(batch)
    if name == "lamaml":
        sizes = [torch.ones_like(w) for w in method.lookahead.weights(two.name)]
        weights = method.lookahead.weights(two.name)
        loss, scores = method.look_ahead(
            weights, sizes, batch, method.lookahead.replays[0], split(batch, 2, Seed(0))
        )
    elif name == "fsdgpm":
        loss, scores = method.perturbed(
            method.lookahead.weights(two.name), batch, method.lookahead.replays[0],
            split(batch, 2, Seed(0)),
        )  # fmt: skip
    elif name in FROZEN:
        scores = method.observe(batch)
        loss = scores.sum().requires_grad_()
    else:
        loss, scores = method.loss(batch)
    loss.backward()
    assert loss.device == scores.device == meta
    assert all(tensor.device == meta for tensor in method.working_tensors())
    images = two.preprocessing(two.train.images.to(meta))
    assert method.logits(images, one.name).device == meta


@pytest.mark.parametrize("name", ALL)
def test_a_method_is_at_most_two_levels_below_the_contract(name):
    bases = [each for each in methods[name].__mro__ if issubclass(each, Method)]
    assert len(bases) <= 3, [each.__name__ for each in bases]
    assert all(len(each.__bases__) == 1 for each in bases), "no mixins"


@pytest.mark.parametrize("name", BASELINES)
def test_settings_of_a_baseline_are_described_in_sentences(name):
    common = {path for path, _ in leaves(TrainingSettings)}
    for path, field in leaves(methods[name].settings_class):
        if path not in common:
            assert re.fullmatch(r"[A-Z].{10,}\.", field.description or ""), path


def test_a_part_of_nested_settings_keeps_the_rest_as_the_method_has_it():
    for name, size in (("er", 200), ("icarl", 2000), ("llt", 100), ("lamaml", 200)):
        default = methods[name].settings_class().memory
        assert default.size == size
        changed = methods[name].settings_class(memory={"size": 7}).memory
        assert (changed.size, changed.counted_in) == (7, default.counted_in)
    changed = methods["fsdgpm"].settings_class(subspace={"energy": [0.5]}).subspace
    assert (changed.energy, changed.energy_step, changed.samples) == ((0.5,), 0.0005, 300)


@pytest.mark.parametrize(("name", "settings", "says"), [
    ("er", {"memory.size": 0}, "size is 0, but must be at least 1"),
    ("er", {"memory.counted_in": "kilos"}, "use class, images or bytes"),
    ("gem", {"lr": 0}, "lr is 0, but must be more than 0"),
    ("gem", {"margin": -1}, "margin is -1, but must be at least 0"),
    ("der", {"alpha": float("inf")}, "alpha is inf, but must be finite"),
    ("sparcl", {"sparsity.weights": 0.9}, "must be at least sparsity.weights"),
    ("llt", {"rounds": (1, 0)}, "rounds is 0, but must be at least 1"),
    ("llt", {"rounds": ()}, "pruning.rounds is empty"),
    ("gpm", {"energy": (0.9, 1.5)}, "energy is 1.5, but must be at most 1"),
    ("gpm", {"energy": ()}, "subspace.energy is empty"),
    ("gpm", {"shared_norms": True}, "parity.task_specific says"),
    ("lamaml", {"shared_norms": True}, "parity.task_specific says"),
    ("softnet", {"minor_lr_factor": 0.5, "optimizer": "adam"}, "use optimizer=sgd"),
    ("joint", {"every": 0}, "every is 0, but must be at least 1"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_refused(name, settings, says):
    with pytest.raises(RivalsError, match=re.escape(says)):
        make(name, **settings)


@pytest.mark.parametrize(("name", "sections"), [
    ("sparcl", ["der", "sparcl"]), ("softnet", ["wsn", "softnet"]), ("er", ["er"]),
    ("chain", ["chain"]),
])  # fmt: skip
def test_the_sections_of_a_recipe_that_a_method_reads(name, sections):
    assert methods[name].recipe_sections() == sections


def test_a_task_cannot_be_learned_twice_under_one_name():
    method = make()
    task = shortened(lessons(1)[0].task, 50)
    teach(method, task)
    with pytest.raises(RivalsError, match="was learned before"):
        method.start(task)


def test_finetuning_forgets_where_independent_networks_do_not():
    found = lessons(4, "digits-permuted")
    drop = {}
    for name in ("finetune", "independent"):
        method = make(name, epochs=5)
        when = []
        for lesson in found:
            teach(method, lesson.task)
            when.append(accuracy(method, lesson))
        drop[name] = when[0] - accuracy(method, found[0])
    assert drop["independent"] == 0
    assert drop["finetune"] > 15


def test_a_chain_starts_as_a_copy_of_the_network_before():
    method = make("chain", epochs=1)
    one, two = lessons(2)
    teach(method, one.task)
    method.start(two.task)
    old, new = method.networks[one.task.name], method.networks[two.task.name]
    for mine, theirs in zip(new.layers(), old.layers(), strict=True):
        assert torch.equal(mine.weight, theirs.weight)
        assert torch.equal(
            mine.norm.state(two.task.name).mean, theirs.norm.state(one.task.name).mean
        )


def test_flops_of_a_dense_step_are_three_forward_passes():
    method = make(
        "finetune", network={"architecture": "mlp", "widths": (32, 32), "units": 1}, epochs=1
    )
    task = shortened(lessons(1)[0].task, 40)
    teach(method, task)
    forward = 2 * 40 * (64 * 32 + 32 * 32 + 32 * 2)
    backward = 2 * 40 * (2 * 32 * 32 + 2 * 32 * 2 + 64 * 32)  # no gradient for the input
    assert method.spent == forward + backward


def test_a_settled_step_costs_what_the_native_network_costs():
    twta = make("random-ticket", network=TINY, epochs=1)
    native = make("finetune", network=TINY, epochs=1)
    task = shortened(lessons(1)[0].task, 40)
    assert teach(twta, task).spent == teach(native, task).spent


def test_joint_training_can_wait_for_several_tasks():
    method, found = make("joint", epochs=8, every=3), lessons(3)
    for lesson in found[:2]:
        teach(method, lesson.task)
        assert method.spent == 0  # kept, and not trained on yet
    teach(method, found[2].task)
    assert method.spent > 0
    assert all(accuracy(method, lesson) > 90 for lesson in found)


@pytest.mark.parametrize(
    ("name", "kind"), [("math:pi", "float"), ("json:JSONDecoder", "type"), ("math:sqrt", "builtin")]
)
def test_a_method_of_ones_own_is_a_method(name, kind):
    with imports_allowed([name]), pytest.raises(RivalsError, match=f"is of type {kind}.*, but a"):
        methods[name]


def test_a_class_is_a_method_by_itself(tmp_path):
    class Patient(methods["finetune"]):
        """Fine-tuning that counts its tasks."""

        counted = 0

        def begin_task(self, task):
            super().begin_task(task)
            type(self).counted += 1

    settings = {"tasks": 2, "epochs": 1, "architecture": "mlp", "widths": (8, 8)}
    options = {"method": Patient, "settings": settings, "out": tmp_path / "run"}
    try:
        results = rivals.run("digits", **options)
        assert Patient.counted == 2
        assert results.content["method"].endswith("Patient")
        assert rivals.run("digits", **options, resume=True).matrix == results.matrix
        plain = rivals.run("digits", method="finetune", settings=settings, out=tmp_path / "plain")
        assert plain.matrix == results.matrix
    finally:
        methods._entries.pop(methods.named(Patient))
    with pytest.raises(RivalsError, match=r"type int, but a name or a subclass of rivals\.Method"):
        rivals.run("digits", method=3)
    with pytest.raises(RivalsError, match="a process of its own, which finds a method of yours as"):
        rivals.compare("digits", [Patient], out=tmp_path / "grid")
