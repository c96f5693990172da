"""The two layers against their equations, and a layer's norm, gate and weights step by step."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from rivals.errors import RivalsError
from rivals.nn.activations import Activations
from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import ActiveUnits, gate, gated, relaxed, sparse
from rivals.nn.convolve import channels_last, convolve
from rivals.nn.selection import Draw, Masked, Settled, Winners
from rivals.nn.task_norm import TaskNorm
from rivals.nn.training_copy import TrainingCopy
from rivals.nn.twta_layers import TWTAConv2d, TWTALinear

TASK = "a task. with a dot"


def opened(layer, inputs, posterior_seed=0):
    """Wire a layer, open a competition on it."""
    generator = torch.Generator().manual_seed(posterior_seed)
    rivals = layer.rivals
    rivals.compete(TASK, torch.randn(rivals.blocks, rivals.units, generator=generator))
    layer.norm.begin(TASK, rivals.count)
    layer.wire(Activations(inputs, TASK, Masked(TASK)))
    layer.training_copy = whole(layer.weight)
    return layer


def everything(weight):
    return weight.read(torch.arange(weight.rows), torch.arange(weight.columns))


def whole(weight):
    return TrainingCopy.take(weight, torch.arange(weight.rows), torch.arange(weight.columns), None)


def test_linear_layer_is_equation_1():
    inputs = torch.randn(6, 10)
    layer = opened(TWTALinear(3, 4, activation="linear", norm="none", stored=True), inputs)
    draw = Draw(TASK, "relaxed", 0.67, torch.Generator().manual_seed(1))
    out = layer(Activations(inputs, TASK, draw))
    sample = draw.active(layer.rivals).forward.detach()  # ξ̂, unit-major
    expected = torch.einsum("ke,be->bk", layer.weight.values[:, :, 0], inputs) * sample
    assert torch.allclose(out.values, expected, atol=1e-6)
    assert out.source is layer.rivals


def test_conv_layer_is_equation_4():
    inputs = torch.randn(2, 3, 7, 7)
    layer = opened(
        TWTAConv2d(2, 4, 3, padding=1, activation="linear", norm="none", stored=True), inputs
    )
    draw = Draw(TASK, "gated", 0.67, torch.Generator().manual_seed(1))
    out = layer(Activations(inputs, TASK, draw))
    maps = F.conv2d(inputs, layer.weight.values.view(8, 3, 3, 3), padding=1)
    hard = draw.active(layer.rivals).forward
    assert torch.allclose(out.values, maps * hard.view(1, -1, 1, 1), atol=1e-6)
    alive = out.values.abs().sum((0, 2, 3)).view(4, 2) > 0  # (units, blocks)
    assert (alive.sum(0) == 1).all()


def test_linear_layer_after_flattening_reads_a_units_positions_together():
    first, second = TWTAConv2d(2, 3, 3, norm="none"), TWTALinear(2, 3, norm="none")
    images = torch.randn(4, 1, 5, 5)
    opened(first, images)
    flow = Activations(torch.zeros(4, 2 * 9), TASK, Masked(TASK), first.rivals)
    opened(second, flow.values)
    second.wire(flow)
    assert everything(second.weight).shape == (6, 6, 9)
    first.rivals.settle(TASK)
    second.rivals.settle(TASK)
    both = []
    for selection in (Winners(TASK), Masked(TASK)):
        flow = first(Activations(images, TASK, selection)).map(lambda x: x.flatten(1))
        out = second(flow).values
        kept = out if out.shape[1] == 2 else out[:, second.rivals.winner_ids(TASK)]
        both.append(kept)
    assert torch.allclose(*both, atol=1e-6)


@pytest.mark.parametrize("live", [1, 2])
def test_losers_weights_keep_every_bit_in_a_sparse_step(live):
    inputs = torch.randn(8, 10)
    layer = opened(TWTALinear(3, 4), inputs)
    before = layer.training_copy.values.clone()
    draw = Draw(TASK, "sparse", 0.67, torch.Generator().manual_seed(2), live)
    layer(Activations(inputs, TASK, draw)).values.square().sum().backward()
    part, ids = draw.slices[layer], draw.active(layer.rivals).ids
    assert part.leaf.shape == (3 * live, 10, 1)  # the gradient is as small as what was live
    part.descend(0.1, 0.01)
    part.write_back()
    lost = torch.ones(12, dtype=torch.bool)
    lost[ids] = False
    assert torch.equal(layer.training_copy.values[lost], before[lost])
    assert not torch.equal(layer.training_copy.values[~lost], before[~lost])
    assert torch.equal(everything(layer.weight), before)  # the shared weight is not touched


def test_protected_edges_return_after_any_step():
    layer = opened(TWTALinear(3, 4), torch.randn(8, 10))
    rows = torch.arange(3)
    columns = torch.arange(10)
    layer.weight.claim("old", rows, columns, layer.weight.read(rows, columns))
    layer.training_copy = whole(layer.weight).keep(
        torch.tensor([0, 1, 5]), columns
    )  # 5: another unit
    frozen = layer.training_copy.values[:2].clone()
    selection = Settled(TASK)
    leaf = selection.weight(layer, rows, torch.arange(10))
    optimiser = torch.optim.SGD([leaf], lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(5):
        optimiser.zero_grad()
        leaf.square().sum().backward()
        optimiser.step()
        selection.slices[layer].guard()
    selection.slices[layer].write_back()
    assert torch.equal(layer.training_copy.values[:2], frozen)
    assert not torch.equal(
        layer.training_copy.values[2], layer.weight.read(torch.tensor([5]), columns)[0]
    )


def test_norm_belongs_to_the_task():
    norm = TaskNorm().train()
    norm.begin("a", 3)
    norm.begin("b", 3)
    for _ in range(3):
        norm(torch.randn(50, 3) * 4 + 7, "a")
    assert norm.state("a").mean.mean() > 5
    assert torch.equal(norm.state("b").mean, torch.zeros(3))


def test_statistics_average_the_first_batches():
    norm = TaskNorm().train()
    norm.begin("a", 2)
    batches = [torch.randn(30, 2) + k for k in range(4)]
    for batch in batches:
        norm(batch, "a")
    expected = torch.stack([b.mean(0) for b in batches]).mean(0)
    assert torch.allclose(norm.state("a").mean, expected, atol=1e-5)


def test_only_live_channels_change_their_statistics():
    norm = TaskNorm().train()
    norm.begin("a", 6)
    norm(torch.randn(20, 2) + 3, "a", ActiveUnits(torch.tensor([1, 4])))
    changed = norm.state("a").mean != 0
    assert changed.tolist() == [False, True, False, False, True, False]


def test_folded_norm_is_the_norm():
    norm = TaskNorm().train()
    norm.begin("a", 3)
    norm(torch.randn(40, 3) * 2 + 1, "a")
    with torch.no_grad():
        norm.state("a").scale.uniform_(0.5, 2)
        norm.state("a").shift.normal_()
    norm.eval()
    values = torch.randn(5, 3)
    factor, offset = norm.folded("a")
    assert torch.allclose(norm(values, "a"), values * factor + offset, atol=1e-6)


def test_a_batch_of_one_uses_the_running_statistics():
    norm = TaskNorm().train()
    norm.begin("a", 3)
    assert torch.isfinite(norm(torch.randn(1, 3), "a")).all()


def test_flows_of_different_rivals_do_not_add():
    one, other = (
        Activations(torch.ones(1, 2), TASK, Masked(TASK), RivalBlocks(2, 2)) for _ in range(2)
    )
    with pytest.raises(ValueError, match="same rivals"):
        one + other


def test_a_layer_without_units_is_refused():
    with pytest.raises(RivalsError, match="at least 1"):
        TWTALinear(0, 4)


@pytest.mark.parametrize("way", ["relaxed", "gated", "sparse"])
@pytest.mark.parametrize("shape", [(9, 6), (4, 6, 5, 5)])
def test_gates_folded_into_the_norm_are_gates_after_the_norm(way, shape):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator).double()
    upstream = torch.randn(shape, generator=generator).double()
    found = []
    for folded in (True, False):
        norm = TaskNorm().train()
        norm.begin("a", 6)
        state = norm.state("a")
        state.double()
        with torch.no_grad():
            state.scale.copy_(torch.linspace(0.5, 2, 6))
            state.shift.copy_(torch.linspace(-1, 1, 6))
        posterior = torch.linspace(-1, 1, 6).double().view(3, 2).requires_grad_()
        sample = torch.softmax(posterior, 1)
        gates = {"relaxed": relaxed, "gated": gated, "sparse": lambda s: sparse(s, 2)}[way](sample)
        inputs = values.clone().requires_grad_()
        out = norm(inputs, "a", gates) if folded else gate(norm(inputs, "a"), gates)
        out.backward(upstream)
        found.append([out, inputs.grad, posterior.grad, state.scale.grad, state.shift.grad])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_strided_convolution_is_the_ordinary_one(kernel):
    values, weight = torch.randn(2, 8, 9, 9), torch.randn(16, 8, kernel, kernel)
    ordinary = F.conv2d(values, weight, stride=2, padding=kernel // 2)
    ours = convolve(channels_last(values), weight, 2, kernel // 2)
    assert torch.allclose(ours, ordinary, atol=1e-4)
