"""The equations: samples follow the posterior, gates and gradients are what the formulas say."""

import math

import pytest
import torch
from scipy import stats

from rivals.nn.competition import (
    active_count,
    anneal,
    gate,
    gated,
    gumbel,
    relaxed,
    relaxed_sample,
    sparse,
    unit_ids,
    winners,
)

BLOCKS, UNITS = 5, 4


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sample(temperature=0.67, seed=0, requires_grad=False):
    posterior = torch.randn(BLOCKS, UNITS, generator=generator(seed)).double()
    posterior.requires_grad_(requires_grad)
    noise = gumbel((BLOCKS, UNITS), generator(seed + 1)).double()
    return posterior, relaxed_sample(posterior, noise, temperature)


def test_winning_frequencies_follow_the_posterior():
    posterior = torch.tensor([1.0, 0.0, -1.0, 0.5])
    draws = 20_000
    noise = gumbel((draws, 4), generator())
    won = relaxed_sample(posterior, noise, 0.05).argmax(1)
    expected = torch.softmax(posterior, 0).double() * draws
    observed = torch.bincount(won, minlength=4).double()
    expected *= observed.sum() / expected.sum()
    assert stats.chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-3


def test_gumbel_noise_has_the_gumbel_distribution():
    noise = gumbel((20_000,), generator())
    assert stats.kstest(noise.numpy(), "gumbel_r").pvalue > 1e-3


def test_relaxed_samples_sum_to_one_and_sharpen_as_the_temperature_falls():
    _, warm = sample(0.67)
    _, cold = sample(0.01)
    assert torch.allclose(warm.sum(1), torch.ones(BLOCKS).double())
    assert cold.max(1).values.mean() > 0.999
    assert (cold.max(1).values >= warm.max(1).values).all()


def test_one_winner_in_every_block():
    posterior = torch.randn(BLOCKS, UNITS, generator=generator())
    won = winners(posterior)
    assert won.shape == (BLOCKS,)
    assert torch.equal(posterior.gather(1, won[:, None])[:, 0], posterior.max(1).values)


def test_ids_are_unit_major_so_that_growth_appends():
    ids = unit_ids(torch.tensor([[0], [2], [1], [0]]))  # the drawing in competition.py
    assert ids.tolist() == [0, 9, 6, 3]
    everything = unit_ids(torch.arange(3).repeat(4, 1))
    assert everything.tolist() == list(range(12))


def test_annealing_and_active_counts():
    assert anneal(0.67, 0.01, 0) == 0.67
    assert anneal(0.67, 0.01, 1) == pytest.approx(0.01)
    assert anneal(0.67, 0.01, 0.5) == pytest.approx(0.34)
    assert [active_count(8, 1, p) for p in (0, 1 / 3, 2 / 3, 1)] == [8, 4, 2, 1]
    assert [active_count(2, 2, p) for p in (0, 0.5, 1)] == [2, 2, 2]


def test_sparse_with_all_units_live_is_relaxed():
    _, drawn = sample()
    whole, full = sparse(drawn, UNITS), relaxed(drawn)
    assert torch.equal(whole.ids, full.ids)
    assert torch.allclose(whole.forward, full.forward)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sparse_keeps_the_best_units_and_renormalises(count):
    _, drawn = sample()
    live = sparse(drawn, count)
    assert len(live.ids) == count * BLOCKS
    blocks, units = live.ids % BLOCKS, live.ids // BLOCKS
    for block in range(BLOCKS):
        chosen = set(units[blocks == block].tolist())
        assert chosen == set(drawn[block].topk(count).indices.tolist())
        assert live.forward[blocks == block].sum() == pytest.approx(1)


def test_a_single_live_unit_passes_unscaled_and_learns_by_its_strength():
    posterior, drawn = sample(requires_grad=True)
    live = sparse(drawn, 1)
    values = torch.randn(3, BLOCKS, generator=generator(5)).double().requires_grad_()
    out = gate(values, live)
    assert torch.allclose(out, values)
    upstream = torch.randn(3, BLOCKS, generator=generator(6)).double()
    out.backward(upstream)
    strength = drawn.max(1).values
    assert torch.allclose(values.grad, upstream * strength)
    assert posterior.grad.abs().sum() > 0


def test_gated_is_hard_forward_and_relaxed_backward():
    posterior, drawn = sample(requires_grad=True)
    live = gated(drawn)
    values = torch.randn(3, BLOCKS * UNITS, generator=generator(5)).double().requires_grad_()
    out = gate(values, live)
    alive = out.detach().view(3, UNITS, BLOCKS) != 0
    assert (alive.sum(1) == 1).all()
    upstream = torch.randn_like(out)
    out.backward(upstream)
    assert torch.allclose(values.grad, upstream * drawn.detach().T.flatten())
    assert posterior.grad.abs().sum() > 0


@pytest.mark.parametrize("way", [relaxed, lambda s: sparse(s, 2)])
def test_gradients_of_relaxed_gates_by_finite_differences(way):
    noise = gumbel((BLOCKS, UNITS), generator(1)).double()
    start = torch.randn(BLOCKS, UNITS, generator=generator()).double().requires_grad_()
    values = torch.randn(3, UNITS * BLOCKS, generator=generator(2)).double().requires_grad_()

    def forward(posterior, values):
        live = way(relaxed_sample(posterior, noise, 0.67))
        return gate(values[:, : len(live.ids)], live)

    assert torch.autograd.gradcheck(forward, (start, values))


def test_the_backward_gate_of_gated_is_the_gradient_of_the_relaxed_one():
    noise = gumbel((BLOCKS, UNITS), generator(1)).double()
    values = torch.randn(3, UNITS * BLOCKS, generator=generator(2)).double()
    grads = []
    for way in (relaxed, gated):
        posterior = torch.randn(BLOCKS, UNITS, generator=generator()).double().requires_grad_()
        gate(values, way(relaxed_sample(posterior, noise, 0.67))).sum().backward()
        grads.append(posterior.grad)
    assert torch.allclose(*grads)


def test_one_draw_per_example_gives_each_example_its_own_gates():
    noise = gumbel((7, BLOCKS, UNITS), generator(1))
    live = relaxed(relaxed_sample(torch.zeros(BLOCKS, UNITS), noise, 0.67))
    assert live.forward.shape == (7, BLOCKS * UNITS)
    out = gate(torch.ones(7, BLOCKS * UNITS, 2, 2), live)
    sums = out[:, :, 0, 0].view(7, UNITS, BLOCKS).sum(1)
    assert torch.allclose(sums, torch.ones(7, BLOCKS), atol=1e-5)
    assert not torch.equal(out[0], out[1])


def test_extreme_uniforms_stay_finite():
    noise = gumbel((1_000_000,), generator())
    assert torch.isfinite(noise).all()
    assert noise.max() < -math.log(1e-8)
