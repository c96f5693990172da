"""GPM, La-MAML and FS-DGPM: what their equations promise."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from rivals.baselines.lookahead import split
from rivals.baselines.subspace import (
    LayerInputs,
    away_from,
    collect,
    directions_needed,
    grow,
    patches,
    within,
)
from rivals.errors import RivalsError
from rivals.nn.activations import Activations
from rivals.nn.dense_layers import DenseConv2d
from rivals.nn.selection import Selection
from rivals.seeds import Seed
from rivals.streams.batching import epoch
from toys import accuracy, lessons, make, same_bits, shortened, steps_of, teach, ticket_bits

MLP = {"architecture": "mlp", "widths": (16, 16), "units": 4}
PLAIN = {**MLP, "norm": "none"}
CONV = {"architecture": "conv-small", "widths": (8, 8, 8), "units": 4}
RESIDUAL = {"architecture": "resnet-small", "widths": (4, 8), "units": 4}


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def inputs_of(*parts):
    inputs = LayerInputs()
    for part in parts:
        inputs.add(part)
    return inputs


def first_batch(method, task):
    seed = method.seed.child("epoch", task.name, 0)
    return next(epoch([task], method.settings.batching, seed))


def tasks(count=2, images=60, benchmark="digits-permuted"):
    return [shortened(lesson.task, images) for lesson in lessons(count, benchmark)]


# Subspaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [7, 19, 20, 21, 200])
@pytest.mark.parametrize("threshold", [0.5, 0.9, 1.0])
def test_a_basis_is_the_one_of_the_svd_whichever_gram_matrix_it_comes_from(columns, threshold):
    scale = torch.linspace(3, 0.1, 20).unsqueeze(1)
    seen = random(20, columns) * scale
    basis = grow(torch.zeros(20, 0), inputs_of(*seen.split(5, 1)), threshold)
    u, s, _ = torch.linalg.svd(seen.double(), full_matrices=False)
    share = (s**2).cumsum(0) / (s**2).sum()
    count = min(int((share < threshold - 1e-9).sum()) + 1, len(s))
    assert basis.shape == (20, count)
    assert torch.allclose(basis.T @ basis, torch.eye(count), atol=1e-5)
    wanted = (u[:, :count] @ u[:, :count].T).float()
    assert torch.allclose(basis @ basis.T, wanted, atol=1e-4)
    held = within(seen.T, basis).square().sum() / seen.square().sum()
    assert held >= threshold - 1e-5


def test_bases_grow_stay_orthonormal_and_end_at_the_full_space():
    basis, sizes = torch.zeros(12, 0), []
    for task in range(8):
        seen = random(12, 40, seed=task) * (torch.arange(12) % 4 == task % 4).unsqueeze(1)
        before = basis
        basis = grow(basis, inputs_of(seen + 0.01 * random(12, 40, seed=9 + task)), 0.99)
        assert torch.equal(basis[:, : before.shape[1]], before)
        assert torch.allclose(basis.T @ basis, torch.eye(basis.shape[1]), atol=1e-5)
        sizes.append(basis.shape[1])
    assert sizes == sorted(sizes)
    assert sizes[0] == 3
    assert sizes[-1] == 12
    again = grow(basis, inputs_of(random(12, 5, seed=50)), 1.0)
    assert again.shape == (12, 12)


def test_the_two_ways_to_count_directions():
    energies = torch.tensor([5.0, 3.0, 1.0, 1.0], dtype=torch.float64)
    for threshold, reach, below in ((0.5, 1, 0), (0.51, 2, 1), (0.8, 2, 1), (1.0, 4, 3)):
        assert directions_needed(energies, 0.0, 10.0, threshold, "reach") == reach
        assert directions_needed(energies, 0.0, 10.0, threshold, "below") == below
    assert directions_needed(energies, 90.0, 100.0, 0.9, "reach") == 0, "what is held is enough"
    assert directions_needed(energies, 90.0, 100.0, 0.92, "reach") == 1
    assert directions_needed(energies * 0, 0.0, 0.0, 0.9, "reach") == 0, "no input at all"


def test_projections():
    basis = torch.linalg.qr(random(30, 6)).Q
    gradient = random(5, 30, seed=1)
    free = away_from(gradient, basis)
    assert (free @ basis).norm() <= 1e-5 * gradient.norm()
    assert torch.equal(away_from(gradient, basis, torch.zeros(6)), gradient)
    assert torch.allclose(away_from(gradient, basis, torch.ones(6)), free, atol=1e-6)
    assert torch.allclose(
        within(within(gradient, basis), basis), within(gradient, basis), atol=1e-5
    )
    kernel = gradient.view(5, 30, 1, 1)
    assert torch.equal(away_from(kernel, basis).flatten(1), free)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 1, 1), (4, 1, 0), (3, 2, 1), (1, 2, 0)]
)
def test_a_convolution_reads_its_patches(kernel, stride, padding):
    layer = DenseConv2d(5, kernel, stride, padding, norm="none", activate=False, seed=3)
    image = random(1, 2, 9, 9)
    out = layer(Activations(image, "", Selection(""))).values
    product = layer.weight.flatten(1) @ patches(layer, image)
    assert torch.allclose(out.flatten(2)[0], product, atol=1e-5)


@pytest.mark.parametrize("network", [MLP, CONV, RESIDUAL])
def test_inputs_of_every_layer_are_collected(network):
    method = make("gpm", network)
    task = tasks(1, 30)[0]
    method.start(task)
    shared = method.network(task.name)
    found = collect(shared, [(task.name, task.preprocessing(task.train.images))])
    sizes = [weight[0].numel() for weight in shared.shared_parameters()]
    assert [inputs.features for inputs in found] == [*sizes, shared.features]
    assert not any(layer._forward_pre_hooks for layer in shared.layers())


# GPM ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [MLP, PLAIN, CONV, RESIDUAL])
def test_all_energy_protected_means_nothing_forgotten(network):
    method = make("gpm", network, energy=(1.0,), momentum=0.9, weight_decay=0.01, lr=0.05)
    first, second = (shortened(task, 12) for task in tasks(2))
    teach(method, first)
    images = first.preprocessing(first.train.images)
    before, weights = method.logits(images, first.name).detach(), method.projected
    bases = list(method.subspace.bases)
    kept = [w.detach().clone() for w in method.network(first.name).shared_parameters()]
    method.start(second)
    assert len(weights()) == len(bases)
    steps_of(method, second)
    after = method.logits(images, first.name).detach()
    assert torch.allclose(before, after, atol=1e-4 * float(before.abs().max() + 1))
    moved = 0.0
    for weight, old, basis in zip(weights(), kept, bases, strict=True):
        change = (weight.detach() - old).flatten(1)
        assert (change @ basis).norm() <= 1e-4 * (change.norm() + 0.1)
        moved += float(change.norm())
    assert moved > 0 or network is not MLP


def test_gpm_forgets_far_less_than_finetuning():
    found = lessons(4, "digits-permuted")
    drop = {}
    for name in ("finetune", "gpm"):
        network = {"architecture": "mlp", "widths": (32, 32), "units": 4}
        method = make(name, network, epochs=6, lr=0.1, network_size="full")
        when = []
        for lesson in found:
            teach(method, shortened(lesson.task, 300))
            when.append(accuracy(method, lesson))
        now = [accuracy(method, lesson) for lesson in found]
        drop[name] = sum(a - b for a, b in zip(when[:-1], now[:-1], strict=True)) / 3
        assert min(when) > 70, name
    assert drop["finetune"] > 8
    assert drop["gpm"] < 3


def test_gpm_charges_and_counts_its_bases():
    method = make("gpm", epochs=1)
    one, two = tasks(2, 40)
    teach(method, one)
    steps = sum(method.flops.values())
    assert method.spent > steps
    assert (
        method.footprint()["bases"] == 4 * sum(basis.numel() for basis in method.subspace.bases) > 0
    )
    teach(method, two)
    assert sum(method.flops.values()) > steps, "projections are part of a step"


def test_energy_for_each_layer_must_fit_the_layers():
    make("gpm", energy=(0.9, 0.95))
    make("gpm", energy=(0.9, 0.95, 0.99), task_specific="nothing")
    with pytest.raises(RivalsError, match="3 values, but 2 layers"):
        make("gpm", energy=(0.9, 0.95, 0.99))
    with pytest.raises(RivalsError, match="3 values, but 2 layers"):
        make("fsdgpm", energy=(0.9, 0.95, 0.99))


# What tasks share --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpm", "lamaml", "fsdgpm"])
def test_a_network_that_is_shared_wholly_is_one_network(name):
    method = make(name, PLAIN, task_specific="nothing", epochs=1)
    alone = make(name, PLAIN, epochs=1)
    for task in tasks(3, 30):
        teach(method, task)
        teach(alone, task)
    bits = [ticket_bits(method, task) for task in method.known]
    assert same_bits(bits[0], bits[1])
    assert same_bits(bits[0], bits[2])
    assert method.footprint()["weights"] < alone.footprint()["weights"]
    fewer = lessons(1)[0].task  # of two classes
    with pytest.raises(RivalsError, match="number of classes"):
        method.start(fewer)


def test_a_norm_that_gpm_shares_is_frozen_after_the_first_task():
    method = make("gpm", task_specific="head", epochs=1)
    one, two = tasks(2, 40)
    teach(method, one)
    norms = [layer.norm.state(one.name) for layer in method.network(one.name).layers()]
    before = [norm.scale.detach().clone() for norm in norms]
    assert not all(bool((scale == 1).all()) for scale in before)
    teach(method, two)
    for layer, norm, scale in zip(method.network("").layers(), norms, before, strict=True):
        assert layer.norm.state(two.name) is norm
        assert torch.equal(norm.scale, scale)


def test_statistics_of_the_test_batch_are_used_and_forgotten():
    method = make("gpm", eval_statistics="batch", epochs=1)
    task = tasks(1, 40)[0]
    teach(method, task)
    images = task.preprocessing(task.train.images)
    before = ticket_bits(method, task.name)
    with torch.no_grad():
        many, few = method.logits(images, task.name)[:5], method.logits(images[:5], task.name)
    assert not torch.allclose(many, few, atol=1e-3), "it depends on the other images"
    assert same_bits(before, ticket_bits(method, task.name))


VARIANTS = [
    ("gpm", {"task_specific": "nothing", "network": PLAIN}),
    (
        "gpm",
        {"task_specific": "head", "momentum": 0.9, "weight_decay": 0.01, "lr_schedule": "constant"},
    ),
    ("gpm", {"network": RESIDUAL, "first_task_rule": "below"}),
    (
        "lamaml",
        {
            "task_specific": "nothing",
            "network": PLAIN,
            "updates_per_batch": 2,
            "positive_steps": True,
        },
    ),
    ("lamaml", {"variant": "sync", "replay_from": "past", "second_order": False}),
    ("lamaml", {"variant": "cmaml", "task_specific": "head", "network": CONV}),
    (
        "fsdgpm",
        {
            "task_specific": "nothing",
            "network": PLAIN,
            "updates_per_batch": 2,
            "second_order": True,
        },
    ),
    ("fsdgpm", {"variant": "lookahead", "importance.learned": True, "weight_decay": 0.01}),
    ("fsdgpm", {"variant": "dgpm", "task_specific": "head", "network": CONV}),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_every_variant_resumes_to_the_same_bits(name, settings):
    found = tasks(3, 42)
    settings = {"epochs": 2, "batch_size": 20, "inner_steps": 2, **settings}
    network = settings.pop("network", MLP)
    if name == "gpm":
        del settings["inner_steps"]

    class EnoughError(Exception):
        pass

    def run(stop=None):
        method = make(name, network, **settings)
        for task in found:
            method.start(task)

            def watch(step, method=method, task=task):
                if task is found[-1] and method.position.step == stop:
                    raise EnoughError

            try:
                steps_of(method, task, watch)
            except EnoughError:
                halted, method = method, make(name, network, **settings)
                method.load(halted.state())
                steps_of(method, task)
            method.finish(task)
        again = make(name, network, **settings)
        again.load(method.state())
        for task in found:
            assert same_bits(ticket_bits(method, task.name), ticket_bits(again, task.name))
        assert again.footprint() == method.footprint()
        return method

    whole, halted = run(), run(stop=2)
    assert whole.spent == halted.spent
    for task in found:
        assert same_bits(ticket_bits(whole, task.name), ticket_bits(halted, task.name))


# La-MAML -----------------------------------------------------------------------------------------


def looked_ahead(method, task, slices):
    """Weights, step sizes, batch and slices of a method before its first step, in float64."""
    method.start(task)
    batch = first_batch(method, task)
    method.before_step(batch)
    images = batch.images.double()
    batch = type(batch)(images, batch.labels, batch.task, batch.index, batch.raw)
    weights = [w.detach().double().requires_grad_() for w in method.lookahead.weights(task.name)]
    sizes = [torch.full_like(w, 0.1).requires_grad_() for w in weights]
    return weights, sizes, batch, split(batch, slices, Seed(1))


def test_one_slice_and_first_order_give_the_gradient_at_the_looked_ahead_point():
    method = make("lamaml", PLAIN, second_order=False, inner_steps=1, clip_grad=100.0)
    task = tasks(1)[0]
    weights, sizes, batch, slices = looked_ahead(method, task, 1)
    loss, _ = method.look_ahead(weights, sizes, batch, [], slices)
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    at_once = F.cross_entropy(method.lookahead.scores_at(weights, batch), batch.labels)
    gradients = torch.autograd.grad(at_once, weights, allow_unused=True)
    pairs = zip(weights, gradients, strict=True)
    ahead = [(w if g is None else w - 0.1 * g).detach().requires_grad_() for w, g in pairs]
    there = F.cross_entropy(method.lookahead.scores_at(ahead, batch), batch.labels)
    for one, other in zip(found, torch.autograd.grad(there, ahead, allow_unused=True), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("second_order", [True, False])
def test_the_gradient_of_step_sizes_is_that_of_finite_differences(second_order):
    method = make("lamaml", PLAIN, second_order=second_order, clip_grad=100.0)
    task = tasks(1)[0]
    count = 5 if second_order else 1  # without it, only one slice leaves nothing out
    weights, sizes, batch, slices = looked_ahead(method, task, count)

    def loss():
        return method.look_ahead(weights, sizes, batch, [], slices)[0]

    found = torch.autograd.grad(loss(), sizes, allow_unused=True)
    generator = torch.Generator().manual_seed(2)
    for size, gradient in zip(sizes, found, strict=True):
        if gradient is None:
            continue
        for _ in range(3):
            place = int(torch.randint(size.numel(), (1,), generator=generator))
            ends = []
            for change in (1e-5, -1e-5):
                with torch.no_grad():
                    size.view(-1)[place] += change
                ends.append(loss().item())
                with torch.no_grad():
                    size.view(-1)[place] -= change
            slope = (ends[0] - ends[1]) / 2e-5
            assert slope == pytest.approx(float(gradient.view(-1)[place]), rel=1e-3, abs=1e-7)


def test_weights_with_negative_step_sizes_stay_and_the_others_move():
    method = make("lamaml", step_size_lr=0.0, epochs=1)
    task = tasks(1, 10)[0]
    method.start(task)
    method.step_sizes["layer0"] = torch.full_like(method.step_sizes["layer0"], -0.1)
    before = [w.detach().clone() for w in method.lookahead.weights(task.name)[:2]]
    steps_of(method, task)
    after = method.lookahead.weights(task.name)[:2]
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_looking_ahead_leaves_no_trace():
    method = make("lamaml", CONV)
    task = tasks(1)[0]
    method.start(task)
    batch = first_batch(method, task)
    values = [w * 2 for w in method.lookahead.weights(task.name)]
    before = {k: t.clone() for k, t in method.network(task.name).tensors().items()}
    parameters = [id(w) for w in method.lookahead.weights(task.name)]
    method.lookahead.scores_at(values, batch)
    method.lookahead.scores_at(values, batch, learning=False)
    assert same_bits(before, method.network(task.name).tensors())
    assert parameters == [id(w) for w in method.lookahead.weights(task.name)]
    method.lookahead.scores_at(values, batch, keep=True)
    changed = method.network(task.name).tensors()
    assert {k.split(".")[-1] for k in changed if not torch.equal(changed[k], before[k])} == {
        "mean", "var", "batches",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["lamaml", "fsdgpm"])
def test_replay_forgets_less_than_finetuning(name):
    one, *others = lessons(3, "digits-permuted")
    chosen = {
        "finetune": {"network_size": "full", "epochs": 6, "lr": 0.1},
        "lamaml": {"epochs": 4, "batch_size": 20, "inner_steps": 2, "step_size": 0.2},
        "fsdgpm": {"epochs": 4, "batch_size": 20, "inner_steps": 2, "lr": 0.1},
    }
    drop = {}
    for each in ("finetune", name):
        method = make(each, **chosen[each])
        teach(method, shortened(one.task, 300))
        first = accuracy(method, one)
        for lesson in others:
            teach(method, shortened(lesson.task, 300))
        drop[each] = first - accuracy(method, one)
        assert first > 70, each
    assert drop["finetune"] > 10
    assert drop[name] < 5


@pytest.mark.parametrize("name", ["lamaml", "fsdgpm"])
def test_all_that_is_replayed_and_tried_is_charged(name):
    method = make(name, epochs=1, replay_size=10, second_order=False)
    plain = make("finetune", network_size="full", epochs=1, batch_size=10)
    one, two = tasks(2, 40)
    for each in (method, plain):
        teach(each, one)
    assert method.spent > 3 * plain.spent
    alone = max(method.flops.values())
    teach(method, two)
    assert all("10 replayed" in kind for kind in method.flops)
    assert min(method.flops.values()) > alone * 0.99
    assert method.footprint()["exemplars"] == sum(method.memory.bytes().values()) > 0


# FS-DGPM -----------------------------------------------------------------------------------------


def test_perturbations_lie_inside_and_steps_outside_of_the_subspace():
    method = make("fsdgpm", energy=(0.9,), epochs=1)
    one, two = tasks(2, 40)
    teach(method, one)
    method.start(two)
    weights = method.lookahead.weights(two.name)
    gradients = [random(*w.shape, seed=i) for i, w in enumerate(weights)]
    tried = method.inside(gradients)
    before = [w.detach().clone() for w in weights[:2]]
    steps_of(method, two)
    for layer, basis in enumerate(method.subspace.bases):
        assert 0 < basis.shape[1] < len(basis)
        inside = tried[layer].flatten(1)
        assert torch.allclose(inside, within(inside, basis), atol=1e-5)
        change = (weights[layer].detach() - before[layer]).flatten(1)
        assert change.norm() > 0
        assert (change @ basis).norm() <= 1e-4 * change.norm()
    for gradient, same in zip(gradients[2:], tried[2:], strict=True):
        assert gradient is same


def test_biases_that_tasks_share_stand_still_after_the_first():
    method = make("fsdgpm", task_specific="nothing", network=PLAIN, epochs=1)
    one, two = tasks(2, 60)

    def biases() -> list[torch.Tensor]:
        network = method.network(two.name)
        head = network.heads[two.name].weight
        return [t.detach().clone() for t in network.task_parameters(two.name) if t is not head]

    teach(method, one)
    method.start(two)
    before, head = biases(), method.network(two.name).heads[two.name].weight.detach().clone()
    assert any(bool(bias.any()) for bias in before), "the first task moved them"
    steps_of(method, two)
    assert all(torch.equal(a, b) for a, b in zip(before, biases(), strict=True))
    assert not torch.equal(head, method.network(two.name).heads[two.name].weight)


@pytest.mark.parametrize("second_order", [True, False])
def test_importance_is_learned_within_a_task_and_starts_anew(second_order):
    settings = {
        "importance.learned": True,
        "importance.lr": 1.0,
        "second_order": second_order,
        "epochs": 1,
    }
    method = make("fsdgpm", **settings)
    one, two = tasks(2, 60)
    teach(method, one)
    assert all(bool((raw == 0.3).all()) for raw in method.raw)
    method.start(two)
    steps_of(method, two)
    assert not any(bool((raw == 0.3).all()) for raw in method.raw)
    assert all(bool(((s > 0) & (s <= 1)).all()) for _, s in method.protected() if s is not None)
    method.finish(two)
    assert all(bool((raw == 0.3).all()) for raw in method.raw)
    assert method.footprint()["bases"] > 0
