"""WSN, SoftNet, DER++, SparCL and LLT: what they promise beyond the contract of every method."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

from rivals.baselines.llt import smallest_removed
from rivals.baselines.masks import kth_smallest, pack_bits, top_count, top_share, unpack_bits
from rivals.baselines.scored_network import ThroughMask
from rivals.baselines.sparcl import ForgettingRecord, grown_to, pruned_to
from rivals.baselines.sparse_account import head_flops, layer_flops, step_share
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.seeds import Seed
from toys import accuracy, lessons, make, same_bits, shortened, steps_of, teach, ticket_bits

CONV = {"architecture": "conv-small", "widths": (8, 8, 8), "units": 4}


# Masks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.08, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("count", [1, 7, 100, 1001])
def test_the_density_of_a_mask_is_exact(share, count):
    scores = torch.randn(count, generator=Seed(count).torch())
    mask = top_share(scores, share)
    assert int(mask.sum()) == count - round((1 - share) * (count - 1))
    assert abs(int(mask.sum()) - share * count) <= 1 + 1e-6
    if 0 < int(mask.sum()) < count:
        assert scores[mask].abs().min() >= scores[~mask].abs().max()


def test_the_largest_are_counted_exactly_even_among_equals():
    values = torch.tensor([3.0, 1.0, 3.0, 3.0, 0.0])
    assert top_count(values, 2).tolist() == [True, False, True, False, False]
    assert [int(top_count(values, n).sum()) for n in range(7)] == [0, 1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("kind", ["all different", "mostly zeros", "sorted", "a few in front"])
@pytest.mark.parametrize("count", [1, 2, 1000, 50_000])
def test_the_kth_smallest_is_that_of_sorting_whatever_a_sample_suggests(kind, count):
    values = np.random.default_rng(count).random(count, dtype=np.float32)
    if kind == "mostly zeros":
        values[values < 0.7] = 0
    elif kind == "sorted":
        values.sort()
    elif kind == "a few in front":  # where the sample looks, values are not like the others
        values[:: max(1, count // 8192)] += 5
    ordered = np.sort(values)
    for k in {0, count // 8, count // 2, int(0.7 * count), int(0.999 * count), count - 1}:
        assert kth_smallest(values, k) == ordered[k]


@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 3, 3)])
def test_masks_take_a_bit_a_weight(shape):
    mask = torch.rand(shape, generator=Seed(1).torch()) < 0.5
    assert pack_bits(mask).nbytes == -(-mask.numel() // 8)
    assert torch.equal(unpack_bits(pack_bits(mask), mask), mask)


def test_gradients_pass_the_mask_straight_through():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 5, generator=generator).requires_grad_()
    scores = torch.randn(4, 5, generator=generator).requires_grad_()
    inputs, mask = torch.randn(3, 5, generator=generator), top_share(scores, 0.4).float()
    effective = (weight * mask).detach().requires_grad_()
    functional.linear(inputs, effective).square().sum().backward()
    functional.linear(inputs, ThroughMask.apply(weight, scores, mask)).square().sum().backward()
    assert torch.allclose(weight.grad, effective.grad * mask, atol=1e-5)
    assert torch.allclose(scores.grad, effective.grad * weight * scores.sign(), atol=1e-5)
    assert bool((scores.grad[mask == 0] != 0).all()), "weights left out may come back"


# WSN ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [None, CONV], ids=["mlp", "conv"])
@pytest.mark.parametrize("settings", [
    {}, {"optimizer": "sgd"}, {"optimizer": "sgd", "weight_decay": 0.1, "density": 0.1},
], ids=str)  # fmt: skip
def test_wsn_forgets_nothing_to_the_bit(network, settings):
    method = make("wsn", network, **settings)
    found = lessons(3)
    images = found[0].task.preprocessing(found[0].test.images)
    logits, masks, before = [], [], None
    for lesson in found:
        teach(method, lesson.task)
        weights = [w.detach().clone() for w in method.scored().weights()]
        used = method.scored().used()
        if before is not None:
            for old, new, taken, now in zip(before, weights, masks[-1], used, strict=True):
                assert torch.equal(old[taken], new[taken]), "a weight in use has moved"
                assert bool((now | ~taken).all()), "a weight in use was given up"
        before, masks = weights, [*masks, used]
        with torch.no_grad():
            logits.append(method.logits(images, lesson.task.name))
    with torch.no_grad():
        for lesson, then in zip(found, logits, strict=True):
            assert torch.equal(method.logits(images, lesson.task.name), then)
    for layer in method.scored().layers():
        for task in method.known:
            taken = float(layer.major(task).float().mean())
            assert abs(taken - method.settings.density) <= 1 / layer.weight.numel()


def test_wsn_keeps_the_mask_of_the_scores_as_they_are_in_the_end():
    method = make("wsn")
    task = lessons(1)[0].task
    teach(method, task)
    for layer in method.scored().layers():
        assert torch.equal(layer.major(task.name), top_share(layer.scores, 0.5))
    method.start(lessons(2)[1].task)
    before = layer.major(task.name)
    layer.scores.data.neg_().add_(torch.rand(layer.scores.shape))
    assert torch.equal(layer.major(task.name), before), "later scores do not concern it"


def test_wsn_counts_masks_by_the_bit_and_only_weights_that_are_not_zero():
    method = make("wsn", density=0.25)
    for lesson in lessons(2):
        teach(method, lesson.task)
    weights = sum(w.numel() for w in method.scored().weights())
    assert method.footprint()["masks"] == 2 * weights / 8
    assert method.footprint()["scores"] == 4 * weights
    facts = method.task_facts(lesson.task.name)
    ticket = method.ticket(lesson.task.name)
    rest = sum(p.numel() for p in ticket.parameters()) - weights  # biases and the head
    assert weights / 4 < facts["retained"] <= weights / 4 + 2 + rest
    zeros = sum(int((p == 0).sum()) for p in ticket.parameters())
    assert facts["retained"] == sum(p.numel() for p in ticket.parameters()) - zeros
    assert all(0.25 <= share <= 0.5 for share in facts["used"].values())


def test_statistics_of_the_test_batch_leave_no_trace():
    method = make("wsn", eval_statistics="batch")
    lesson = lessons(1)[0]
    teach(method, lesson.task)
    images, name = lesson.task.preprocessing(lesson.test.images), lesson.task.name
    bits = ticket_bits(method, name)
    with torch.no_grad():
        once, again = method.logits(images, name), method.logits(images, name)
        fewer = method.logits(images[:9], name)
    assert torch.equal(once, again)
    assert not torch.allclose(once[:9], fewer), "other images in the batch matter"
    assert same_bits(bits, ticket_bits(method, name))


def test_norms_that_nothing_protects_are_refused():
    with pytest.raises(RivalsError, match="shared_norms is true, but nothing protects"):
        make("wsn", shared_norms=True)
    with pytest.raises(RivalsError, match="use shared_norms=true"):
        make("der", shared_norms=False)


# SoftNet ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [
    {}, {"minor_lr_factor": 0.1, "minor_layers": 1}, {"classifier": "prototypes"},
    {"density": 0.1, "optimizer": "adam"},
], ids=str)  # fmt: skip
def test_softnet_never_moves_major_weights(settings):
    method = make("softnet", epochs=3, **settings)
    one, two = lessons(2)
    teach(method, one.task)
    before = [w.detach().clone() for w in method.scored().weights()]
    major = method.scored().used()
    teach(method, two.task)
    moved = [old != new for old, new in zip(before, method.scored().weights(), strict=True)]
    for layer, (changed, taken) in enumerate(zip(moved, major, strict=True)):
        assert not bool(changed[taken].any())
        held = settings.get("minor_layers") and layer == 0
        assert bool(changed.any()) == (not held), "minor weights are the room for what comes"
        assert abs(float(taken.float().mean()) - method.settings.density) <= 1 / taken.numel()


def test_softnet_reads_minor_weights_turned_down_by_a_draw_of_the_task():
    method = make("softnet", density=0.5)
    one, two = (lesson.task for lesson in lessons(2))
    for task in (one, two):
        teach(method, task)
    layer = method.scored().layers()[0]
    flows = [method.scored().flow(torch.zeros(1, 1, 8, 8), task.name) for task in (one, two)]
    first, second = (layer.mask(flow) for flow in flows)
    minor = first[~layer.major(one.name)]
    assert torch.equal(first, layer.mask(flows[0])), "the same at every inference"
    assert not torch.equal(first, second)
    assert ((minor >= 0) & (minor < 1)).all()
    assert 0.4 < float(minor.mean()) < 0.6
    assert bool((first[layer.major(one.name)] == 1).all())


def test_prototypes_are_class_means_and_predict_as_well():
    method = make("softnet", classifier="prototypes", epochs=8)
    lesson = lessons(1)[0]
    task = teach(method, lesson.task) and lesson.task
    assert accuracy(method, lesson) > 90
    images = task.preprocessing(task.train.images)
    with torch.no_grad():
        features = method.scored().learning(False).flow(images, task.name).values
    mean = features[task.train.labels == 1].mean(0)
    row = method.scored().heads[task.name].weight[1].flatten()
    assert torch.allclose(row / row.norm(), mean / mean.norm(), atol=1e-5)


# DER++ --------------------------------------------------------------------------------------------


def test_der_stores_the_scores_that_an_example_was_given():
    method = make("der", epochs=1)
    found = lessons(2)
    for lesson in found:
        teach(method, lesson.task)
    for number, lesson in enumerate(found, start=1):
        kept = method.memory.all(lesson.task.name)
        assert kept.extra["scores"].shape == (len(kept.labels), 2 * number)
    assert method.footprint()["exemplars"] == sum(method.memory.bytes().values())


def test_der_pulls_scores_towards_those_stored():
    method = make("der", epochs=1, alpha=1.0, beta=0.0)
    lesson = lessons(1)[0]
    teach(method, lesson.task)
    kept = [method.memory.all(lesson.task.name)]
    given = method.seen.train_scores(kept[0].images)
    stored = kept[0].extra["scores"]
    assert torch.allclose(method.replay.score_loss(kept), (given - stored).square().mean())
    labels = functional.cross_entropy(given, kept[0].labels)
    assert torch.allclose(method.replay.label_loss(kept), labels, atol=1e-4)


def final(name, found, **settings):
    method = make(name, **settings)
    for lesson in found:
        teach(method, lesson.task)
    return method, float(np.mean([accuracy(method, lesson) for lesson in found]))


PERMUTED = {
    "network": {"architecture": "mlp", "widths": (32, 32), "units": 4},
    "epochs": 5,
    "lr": 0.1,
}


@pytest.fixture(scope="module")
def forgetful():
    return final("finetune", lessons(4, "digits-permuted"), network_size="full", **PERMUTED)[1]


@pytest.mark.parametrize(("name", "settings"), [
    ("wsn", {"adam_lr_factor": 0.1}), ("softnet", {}), ("der", {}), ("sparcl", {}), ("llt", {}),
])  # fmt: skip
def test_they_remember_what_fine_tuning_forgets(name, settings, forgetful):
    found = lessons(4, "digits-permuted")
    assert final(name, found, **PERMUTED, **settings)[1] > forgetful + 10


@pytest.mark.parametrize("name", ["der", "sparcl", "llt"])
def test_with_the_task_unknown_all_classes_compete(name):
    found = lessons(3)
    method, known = final(name, found, epochs=6)
    right = []
    for number, lesson in enumerate(found):
        prediction = method.predict(lesson.test.images, None)
        hit = (prediction.task == number) & (prediction.label == lesson.test.labels)
        right.append(100 * float(hit.float().mean()))
    assert 60 < np.mean(right) <= known


# SparCL -------------------------------------------------------------------------------------------


def test_pruning_and_growing_are_exact_and_start_from_zero():
    mask = torch.rand(40, 5, generator=Seed(2).torch()) < 0.6
    importance = torch.rand(40, 5, generator=Seed(3).torch())
    kept = pruned_to(mask, importance, 50)
    assert int(kept.sum()) == 50
    assert not bool((kept & ~mask).any())
    assert importance[kept].min() >= importance[mask & ~kept].max()
    grown = grown_to(kept, 60, Seed(4).torch())
    assert int(grown.sum()) == 60
    assert bool((grown | ~kept).all())


def test_sparcl_holds_the_sparsity_it_names():
    method = make(
        "sparcl",
        epochs=10,
        **{"sparsity.weights": 0.75, "sparsity.gradients": 0.8, "refresh_every": 3},
    )
    shares, gradients = set(), []
    adjust = method.adjust_gradients

    def adjusted(batch):
        adjust(batch)
        gradients.extend(float((w.grad != 0).float().mean()) for w in method.pruned())

    method.adjust_gradients = adjusted
    for lesson in lessons(2):
        method.start(lesson.task)
        before = [mask.clone() for mask in method.masks]

        def watch(step):
            for weight, mask in zip(method.pruned(), method.masks, strict=True):
                assert not bool(weight[~mask].any()), "a weight that is masked is zero"
                shares.add(round(float(mask.float().mean()), 2))

        steps_of(method, lesson.task, watch)
        method.finish(lesson.task)
        for weight, mask, old in zip(method.pruned(), method.masks, before, strict=True):
            assert int(mask.sum()) == round(0.25 * mask.numel())
            assert not torch.equal(mask, old), "masks change in a task"
            assert int(weight.count_nonzero()) <= int(mask.sum())
    assert shares == {0.25, 0.26}
    assert max(gradients) <= 0.2 + 1e-6


def test_sparcl_lets_the_easiest_examples_go():
    method = make("sparcl", epochs=10, remove_examples=0.3)
    task = shortened(lessons(1)[0].task, 200)
    method.start(task)
    counts = []
    steps_of(method, task, lambda step: counts.append(len(method.training_set(task)[0].train)))
    assert sorted(set(counts), reverse=True) == [200, 185, 170, 155, 140]
    assert method.position.step == method.position.steps
    method.finish(task)

    record = ForgettingRecord(4)
    for right in ([True, True, False, True], [True, False, False, True], [True, True, False, True]):
        record.record(torch.arange(4), torch.tensor(right))
    assert record.forgotten.tolist() == [0, 1, 0, 0]
    record.remove(2, Seed(0))
    assert record.left.tolist() == [1, 2], "forgotten once, and never learned"
    record.record(torch.tensor([1]), torch.tensor([True]))
    record.remove(9, Seed(0))
    assert len(record.left) == 1


def test_sparcl_is_charged_for_what_is_not_zero():
    method = make("sparcl", epochs=4)
    found = lessons(2)
    for lesson in found:
        teach(method, lesson.task)
    dense = method.task_facts(lesson.task.name)["flops_dense"]
    assert 0.2 < method.spent / dense < 0.6  # at widths of 16, heads and batches of masks weigh in
    assert method.nominal_share == 0.25


def test_the_dense_step_is_the_step_that_is_counted():
    method = make("der", epochs=1, network=CONV)
    task = shortened(lessons(1)[0].task, 20)
    method.start(task)
    steps_of(method, task)
    network = method.network(task.name)
    layers, heads = layer_flops(network), head_flops(network)
    assert method.spent == 20 * (3 * sum(layers) - layers[0] + 3 * heads)
    ones = [1.0] * len(layers)
    assert step_share(layers, heads, ones, ones) == 1
    assert step_share([4.0, 4.0], 0.0, [0.5, 0.5], [0.25, 0.25]) == (2 + 2 + 2 + 1 + 1) / 20


# LLT ----------------------------------------------------------------------------------------------


def test_a_round_of_pruning_removes_a_fifth_of_what_is_left():
    weights = [torch.randn(10, 7), torch.randn(33) * 10]
    masks = [torch.ones_like(w, dtype=torch.bool) for w in weights]
    left = 103
    for _ in range(5):
        fewer = smallest_removed(weights, masks, 0.2)
        assert sum(int(m.sum()) for m in fewer) == left - int(0.2 * left)
        assert all(bool((old | ~new).all()) for old, new in zip(masks, fewer, strict=True))
        left, masks = left - int(0.2 * left), fewer
    sizes = torch.cat([w.abs().flatten() for w in weights])
    kept = torch.cat([m.flatten() for m in masks])
    assert sizes[kept].min() >= sizes[~kept].max(), "the smallest of all layers go"


def test_llt_prunes_by_its_schedule_and_starts_again_from_the_initial_values():
    method = make("llt", epochs=2, rounds=(1, 2))
    initial = method.build().weights()
    before, shares = None, []
    for lesson in lessons(4):
        method.start(lesson.task)
        if before is not None:
            for weight, first, mask in zip(
                method.network("shared").weights(), initial, method.masks, strict=True
            ):
                assert torch.equal(weight, first * mask)
        steps_of(method, lesson.task)
        method.finish(lesson.task)
        if before is not None:
            assert all(bool((o | ~n).all()) for o, n in zip(before, method.masks, strict=True))
        before = method.masks
        shares.append(method.nominal_share)
        for weight, mask in zip(method.network("shared").weights(), method.masks, strict=True):
            assert not bool(weight[~mask].any())
    assert shares == pytest.approx([0.8, 0.8**3, 0.8**3, 0.8**3], abs=0.01)


def test_the_default_schedule_ends_at_687_percent():
    assert methods["llt"].settings_class().pruning.rounds == (1, 1, 2, 3, 5)
    assert pytest.approx(0.0687, abs=1e-4) == 0.8**12
    method = make("llt", **{"pruning.enabled": False})
    teach(method, shortened(lessons(1)[0].task, 40))
    assert method.nominal_share == 1
    assert len(method.masks) == 0


@pytest.mark.parametrize(
    "settings", [{"distillation.enabled": False}, {}, {"distillation.images": 30}], ids=str
)
def test_llt_distils_on_and_off(settings):
    method = make("llt", epochs=1, **settings)
    one, two = (lesson.task for lesson in lessons(2))
    teach(method, one)
    method.start(two)
    count = min(len(one.train), 200) + len(two.train)
    if "distillation.enabled" in settings:
        assert method.unlabelled == {}
    else:
        expected = settings.get("distillation.images", count)
        assert len(method.unlabelled["images"]) == expected
        assert (
            method.unlabelled["main"].shape == method.unlabelled["auxiliary"].shape == (expected, 2)
        )
        assert method.footprint()["teacher"] == 2 * 2 * 4 * expected
        assert method.footprint()["unlabelled"] == 64 * expected
    steps_of(method, two)
    method.finish(two)
    assert method.footprint()["teacher"] == 0


def test_llt_takes_neighbours_from_a_folder_of_pictures(tmp_path):
    from PIL import Image

    for number in range(30):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 9), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    method = make("llt", epochs=1, pool=str(tmp_path), neighbours=1, size=10)
    one, two = (lesson.task for lesson in lessons(2))
    teach(method, one)
    spent = method.spent
    method.start(two)
    assert method.unlabelled["images"].shape == (20, 1, 8, 8)
    assert 0 < method.spent < spent, "looking through the pool is charged"
    steps_of(method, two)
    method.finish(two)
    with pytest.raises(RivalsError, match="which is not a folder"):
        make("llt", pool=str(tmp_path / "nowhere"))


def test_distillation_is_least_where_nothing_has_moved():
    method = make("llt")
    before = torch.randn(6, 3)
    same = method.distillation(torch.cat([before, torch.randn(6, 2)], 1), before)
    assert same < method.distillation(before + torch.randn(6, 3), before)


# Going on -----------------------------------------------------------------------------------------

VARIANTS = [
    ("wsn", {"optimizer": "sgd", "weight_decay": 0.01, "density": 0.08}),
    ("softnet", {"classifier": "prototypes", "minor_lr_factor": 0.5}),
    ("der", {"augmentation": "crop-flip", "loss_over": "task", "memory.size": 12}),
    (
        "sparcl",
        {"sparsity.weights": 0.95, "sparsity.gradients": 0.96, "epochs": 10, "refresh_every": 2},
    ),
    ("llt", {"distillation.enabled": False, "rewind": False, "rounds": (2, 2)}),
    ("llt", {"pruning.enabled": False, "distillation.images": 20}),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=lambda value: str(value))
def test_a_state_in_the_middle_goes_on_to_the_same_bits(name, settings):
    found = [shortened(lesson.task, 90) for lesson in lessons(2)]
    whole = make(name, **settings)
    for task in found:
        teach(whole, task)

    class EnoughError(Exception):
        pass

    for stop in (2, 6, 9):
        halted = make(name, **settings)
        teach(halted, found[0])
        halted.start(found[1])
        at = itertools.count(1)

        def watch(step, at=at, stop=stop):
            if next(at) == stop:
                raise EnoughError

        try:
            steps_of(halted, found[1], watch)
        except EnoughError:
            resumed = make(name, **settings)
            resumed.load(halted.state())
            steps_of(resumed, found[1])
            halted = resumed
        halted.finish(found[1])
        for task in found:
            assert same_bits(ticket_bits(whole, task.name), ticket_bits(halted, task.name))
        assert (halted.spent, halted.footprint()) == (whole.spent, whole.footprint())
