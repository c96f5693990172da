"""Logistic regression on small pixels: what a picture shows without any network.

    minimise  Σ cross-entropy + λ/2 |W|²

over pictures of 8×8 pixels, each pixel brought to mean 0 and deviation 1. λ is the precision of a
normal prior on the weights; it does not depend on how many pictures there are, so it can be chosen
by cross-validation on some of them. Nothing here is random but the folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.naming.discriminant import Head
from rivals.naming.minimise import minimise
from rivals.seeds import Seed
from rivals.streams.stream import folds, stratified

SIDE = 8  # pixels
IMAGES = 256  # made small at once
PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0)  # λ, the strongest first
CHOOSING = 500  # pictures that choose λ, at most
FOLDS = 3  # that choose it
ITERATIONS = 60  # at most; 10 to 20 are usual
TOLERANCE = 1e-6  # of the mean loss: what another step may gain
ROUGHLY = 1e-4  # the same while λ is chosen


def pixel_regression(images: Tensor, labels: Tensor, seed: Seed) -> Head:
    """Logistic regression on `small_pixels`; weight (classes, channels · 64) and bias (classes,).

    Args:
        images: (n, channels, height, width), bytes.
        labels: (n,), from 0 to classes − 1, each of them at least once.
    """
    return logistic_regression(small_pixels(images), labels, seed)


def small_pixels(images: Tensor) -> Tensor:
    """(n, channels · 64): means of the pixels in 8×8 fields, from 0 to 1."""
    parts = [
        F.adaptive_avg_pool2d(some.float() / 255, SIDE).flatten(1)
        for some in images.split(IMAGES)  # type: ignore[no-untyped-call]
    ]
    return torch.cat(parts)


def logistic_regression(rows: Tensor, labels: Tensor, seed: Seed) -> Head:
    """Weight and bias with the λ that predicts best in cross-validation inside these rows."""
    return fit_path(rows, labels, [best_penalty(rows, labels, seed)])[0]


def best_penalty(rows: Tensor, labels: Tensor, seed: Seed) -> float:
    """The λ that predicts best in cross-validation."""
    some, _ = stratified(labels, max(0.0, 1 - CHOOSING / len(rows)), seed.child("some"))
    few, truth, losses = rows[some], labels[some], torch.zeros(len(PENALTIES))
    for kept, held in folds(truth, FOLDS, seed.child("penalty")):
        if len(torch.unique(truth[kept])) <= int(labels.max()):
            continue  # the one picture of a class would be tested here
        heads = fit_path(few[kept], truth[kept], PENALTIES, ROUGHLY)
        for number, (weight, bias) in enumerate(heads):
            scores = few[held] @ weight.T + bias
            losses[number] += F.cross_entropy(scores, truth[held], reduction="sum")
    return PENALTIES[int(losses.argmin())]


def fit_path(
    rows: Tensor, labels: Tensor, penalties: Iterable[float], tolerance: float = TOLERANCE
) -> list[Head]:
    """Weight and bias for each λ; each search starts where the one before it ended.

    Neighbouring pixels are alike, which makes the search slow. So it runs in the axes of their
    covariance, each scaled by how curved the loss is there.
    """
    centre, scale = rows.mean(0), rows.std(0, correction=0).clamp_min(1e-3)
    standard = (rows - centre) / scale
    values, axes = torch.linalg.eigh(standard.T @ standard)
    ones, classes, heads = torch.ones(len(rows), 1), int(labels.max()) + 1, []
    inputs, truth = torch.cat([standard @ axes, ones], 1), F.one_hot(labels, classes).float()
    curved = torch.cat([values.clamp_min(0), ones.sum(0)]) / classes  # roughly, without λ
    found = torch.zeros(classes, inputs.shape[1])  # weights in these axes, then the bias
    for penalty in penalties:
        decay = torch.full_like(curved, penalty)
        decay[-1] = 0  # the bias is free
        found = _minimise(inputs, truth, decay, found, curved + decay, tolerance * len(rows))
        weight = (found[:, :-1] @ axes.T) / scale
        heads.append((weight, found[:, -1] - weight @ centre))
    return heads


def _minimise(
    inputs: Tensor, truth: Tensor, decay: Tensor, start: Tensor, curved: Tensor, enough: float
) -> Tensor:
    """The weights (classes, d) with the least loss.

    `curved` (d,) is about the second derivative of the loss, so weights are searched in units of
    its root; the search ends where a step gains less than `enough`.
    """
    unit = curved.rsqrt()

    def evaluate(point: Tensor) -> tuple[float, Tensor]:
        weight = point * unit
        logs = torch.log_softmax(inputs @ weight.T, 1)
        value = 0.5 * (decay * weight.square()).sum() - (logs * truth).sum(dtype=torch.float64)
        return float(value), ((logs.exp() - truth).T @ inputs + decay * weight) * unit

    return minimise(evaluate, start / unit, math.sqrt(enough / start.numel()), ITERATIONS) * unit
