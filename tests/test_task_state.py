"""State where torch sees it: one module for each task, on any device, saved and copied as usual."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from rivals.naming import gaussian
from rivals.naming.discriminant import ClassStatistics, covariance
from rivals.naming.discriminant import head as discriminant_head
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.selection import Draw, Masked, Settled
from rivals.nn.stem import EDGES, PIXELS, STEM, Stem
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from toys import TINY, lessons, make, same_bits, shortened, teach, ticket_bits

TASK = "a task. with a dot"


def learned(count=2, **settings):
    method = make(epochs=1, network=TINY, **settings)
    for lesson in lessons(count, "digits-permuted"):
        teach(method, shortened(lesson.task, 80))
    return method


def test_torch_sees_every_tensor_of_every_task():
    method = learned()
    names = set(method.network.state_dict())
    for number in range(2):
        key = f"tasks.permutation-{number + 1}."
        mine = {name.removeprefix(key) for name in names if name.startswith(key)}
        assert {
            "head.weight", "head.bias", "norm0.scale", "norm1.var", "winners0", "winners1",
            "claim0.first", "claim0.values", "claim1.rows", "record.statistics.rooted_means",
        } <= mine  # fmt: skip
    tables = {id(p) for p in method.network.tasks.parameters()}
    assert tables <= {id(p) for p in method.network.parameters()}
    assert not any(p.requires_grad for p in method.network.parameters()), "learned tasks are frozen"


def test_dropping_a_task_drops_one_object_and_all_of_its_tensors():
    method = learned()
    method.drop("permutation-1")
    assert list(method.tasks) == ["permutation-2"]
    assert not [n for n in method.network.state_dict() if n.startswith("tasks.permutation-1.")]
    assert list(method.known) == list(method.facts) == list(method.network.heads)


def test_a_copy_is_independent_of_the_original():
    method = learned()
    before = ticket_bits(method, "permutation-1")
    other = copy.deepcopy(method.network)
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            if tensor.is_floating_point():
                tensor.fill_(0.5)
        other.tasks["permutation-1"].claim0.values.fill_(3)
    assert same_bits(before, ticket_bits(method, "permutation-1"))
    assert not same_bits(before, dict(other.cut("permutation-1").state_dict()))
    assert other.layers()[0].norm.tasks["permutation-1"] is other.tasks["permutation-1"].norm0


def test_a_state_dict_restores_changed_weights():
    method = learned()
    before = {name: tensor.clone() for name, tensor in method.network.state_dict().items()}
    bits = ticket_bits(method, "permutation-2")
    with torch.no_grad():
        for parameter in method.network.parameters():
            parameter.zero_()
    assert not same_bits(bits, ticket_bits(method, "permutation-2"))
    method.network.load_state_dict(before)
    assert same_bits(bits, ticket_bits(method, "permutation-2"))


def test_any_name_of_a_task_works():
    table = TaskTable()
    names = [TASK, "training", "keys", "a/b", "", "Ü", "_modules"]
    for name in names:
        table.add(name).put("winners0", torch.zeros(2))
    assert list(table) == names
    assert len(table.state_dict()) == len(names)
    column = table.column("winners0")
    del column["keys"]
    assert list(column) == [name for name in names if name != "keys"]
    with pytest.raises(KeyError):
        column["keys"]


NETWORKS = {
    "mlp": {"architecture": "mlp", "widths": (8, 8), "units": 2},
    "conv-small": {"architecture": "conv-small", "widths": (8, 8, 8), "units": 2},
    "resnet-small": {"architecture": "resnet-small", "widths": (4, 8), "units": 2},
}


def competing(name, device="cpu"):
    """A network in the middle of a competition, then moved."""
    plan = NetworkPlan(NetworkSettings(**NETWORKS[name]), (3, 16, 16))
    network = plan.rivals(Seed(0))
    posteriors = [torch.randn(r.blocks, r.units) for r in network.rivals()]
    network.open(TASK, 3, posteriors)
    return network.to(device)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("gating", ["relaxed", "gated", "sparse"])
def test_no_tensor_is_forgotten_on_the_cpu_while_units_compete(name, gating):
    """On the meta device any tensor that stayed on the CPU raises."""
    network = competing(name, "meta")
    for layer in network.layers():
        copy_ = layer.training_copy
        layer.training_copy = type(copy_)(
            copy_.rows.to("meta"), copy_.columns.to("meta"), copy_.values.to("meta"), None
        )
    draw = Draw(TASK, gating, 0.5, torch.Generator().manual_seed(0), active=1)
    images = torch.zeros(4, 3, 16, 16, device="meta")
    network.train()
    scores = network(images, TASK, draw)
    assert scores.device.type == "meta"
    nn.functional.cross_entropy(scores, torch.zeros(4, dtype=torch.long, device="meta")).backward()
    assert all(r.posteriors[TASK].grad is not None for r in network.rivals())


@pytest.mark.parametrize("name", NETWORKS)
def test_no_tensor_is_forgotten_on_the_cpu_at_inference(name):
    network = competing(name)
    network.settle(TASK)
    network.close(TASK)
    network.freeze(TASK)
    network = network.to("meta")
    images = torch.zeros(4, 3, 16, 16, device="meta")
    network.eval()
    for selection in (Masked(TASK), Settled(TASK)):
        for layer in network.layers():
            shape = layer.weight.shape
            layer.weight.read = lambda rows, columns, taps=shape[2]: torch.empty(
                len(rows), len(columns), taps, device=rows.device
            )
            copy_ = layer.training_copy
            layer.training_copy = type(copy_)(
                copy_.rows.to("meta"), copy_.columns.to("meta"), copy_.values.to("meta"), None
            )
        assert network(images, TASK, selection).device.type == "meta"


@pytest.mark.parametrize("kind", [STEM, PIXELS, EDGES])
def test_what_direct_heads_read_is_on_the_device_of_the_pictures(kind):
    stem = Stem(nn.Sequential(nn.Conv2d(3, 5, 8, 8), nn.Flatten()), 20) if kind == STEM else None
    settings = NetworkSettings(architecture="mlp", widths=(8,), units=2)
    shape = (20, 1, 1) if stem else (3, 16, 16)
    network = NetworkPlan(settings, shape, stem=stem).rivals(Seed(0))
    width = network.direct_widths[kind]
    network.add_direct_head(TASK, torch.zeros(3, width), torch.zeros(3))
    network = network.to("meta")
    images = torch.zeros(4, 3, 16, 16, device="meta")
    assert network.learning(False).direct_flow(images, kind).values.shape == (4, width)
    assert network(images, TASK).device.type == "meta"


class Elsewhere(torch.Tensor):
    """A tensor with values that meets only its like, as tensors of two devices do."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.Tensor.cpu:
            return args[0].as_subclass(torch.Tensor)
        met = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
        if any(type(each) is not cls and each.dim() for each in met):
            raise RuntimeError(f"{function.__name__} of tensors on two devices")
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("places", list(itertools.product([torch.Tensor, Elsewhere], repeat=3)))
@pytest.mark.parametrize("alone", [False, True])
def test_a_discriminant_takes_its_parts_from_any_device(places, alone):
    """After learning statistics are on the CPU, after loading they are on that of the model."""
    torch.manual_seed(0)
    rows, labels = torch.randn(40, 6), torch.arange(40) % 3
    within = torch.ones(1) if alone else torch.eye(6)
    kept = ClassStatistics.of(rows, labels).tensors()
    wanted = discriminant_head(
        ClassStatistics.from_tensors(kept).means,
        covariance([ClassStatistics.from_tensors(kept)], within, 30.0),
    )
    at_rows, at_kept, at_within = places
    same = ClassStatistics.of(rows.as_subclass(at_rows), labels).tensors()
    assert all(torch.equal(same[name], kept[name]) for name in kept)
    moved = {name: tensor.as_subclass(at_kept) for name, tensor in kept.items()}
    found = ClassStatistics.from_tensors(moved)
    spread = covariance([found], within.as_subclass(at_within), 30.0)
    weight, bias = discriminant_head(found.means, spread)
    assert type(weight) is type(bias) is torch.Tensor
    assert torch.equal(weight, wanted[0])
    assert torch.equal(bias, wanted[1])
    density = gaussian.fit(rows.as_subclass(at_rows), labels)
    both = gaussian.join(
        {name: t.as_subclass(at_kept) for name, t in density.items()}, density, 0.5
    )
    assert torch.allclose(gaussian.full_covariance(both), gaussian.full_covariance(density))
