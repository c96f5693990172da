"""A head in closed form: the linear discriminant of features, nothing is trained.

    score_c(x) = w_c · x + b_c,   w_c = Σ⁻¹ μ_c,   b_c = −½ μ_c · Σ⁻¹ μ_c

μ_c is the mean of a class and Σ the covariance around these means. Counts, means and one scatter
matrix are all that it needs of pictures, so that learning is counting and solving, and forgetting
is taking counts away. A few pictures show little of a covariance, so that of classes seen before
stands in for `prior` pictures, and with very few it is all there is: then no scatter is kept. What
all scores have in common is taken out: it says nothing, and small scores lose less in rounding.

Of the features of a stem no covariance is known before, only one variance for all of them. Then the
discriminant finds the nearest mean, or that variance stands in for `prior` pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

PRIOR = 300.0  # pictures that the covariance of other classes counts as, where nothing chose it
MOST_IN_COVARIANCE = 2048  # features of a stem that a task may keep a covariance of
RIDGE = 1e-3  # of the mean variance, added to every variance

Head = tuple[Tensor, Tensor]  # weight (classes, d) and bias (classes,)


@dataclass(frozen=True)
class ClassStatistics:
    """What a linear discriminant needs of the features of pictures; always on the CPU.

    Wherever features are computed, few numbers with 64 bits follow, and not every device has these.

    As tensors that are stored, means and scatter have 16 bits; the head is computed from these, so
    that it is the same after loading.
    """

    means: Tensor  # (classes, d), float64
    counts: Tensor  # (classes,), float64
    scatter: Tensor | None  # (d, d), float64: around the means, summed; None: too few pictures

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int | None = None) -> ClassStatistics:
        """Of features (n, d) with labels (n,); every class occurs at least once."""
        rows, labels = features.cpu().double(), labels.cpu()
        classes = int(labels.max()) + 1 if classes is None else classes
        counts = torch.bincount(labels, minlength=classes).double()
        means = torch.zeros(classes, rows.shape[1], dtype=torch.float64)
        means = means.index_add_(0, labels, rows) / counts.unsqueeze(1)
        apart = rows - means[labels]
        return cls(means, counts, apart.T @ apart)

    @property
    def freedom(self) -> float:
        """The number of pictures that a covariance is known from; 0 without a scatter."""
        return 0.0 if self.scatter is None else max(0.0, float(self.counts.sum() - len(self.means)))

    def without_scatter(self) -> ClassStatistics:
        return replace(self, scatter=None)

    def join(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics of both samples together; they have the same classes."""
        counts = self.counts + other.counts
        share = (other.counts / counts).unsqueeze(1)
        apart = other.means - self.means
        means = self.means + share * apart
        scatter = None
        if self.scatter is not None and other.scatter is not None:
            between = (self.counts.unsqueeze(1) * share * apart).T @ apart
            scatter = self.scatter + other.scatter + between
        return ClassStatistics(means, counts, scatter)

    def tensors(self) -> dict[str, Tensor]:
        """To be stored: 16 bits a mean; of the covariance, where there is one, one half."""
        kept = {"means": self.means.half(), "counts": self.counts.to(torch.int32)}
        if self.scatter is not None:
            rows, columns = torch.triu_indices(*self.scatter.shape)
            covariance = self.scatter[rows, columns] / max(1.0, self.freedom)
            kept["covariance"] = covariance.half()
        return kept

    @classmethod
    def from_tensors(cls, kept: dict[str, Tensor]) -> ClassStatistics:
        kept = {name: tensor.cpu() for name, tensor in kept.items()}
        means, counts = kept["means"].double(), kept["counts"].double()
        found = cls(means, counts, None)
        if "covariance" in kept:
            d = means.shape[1]
            whole = torch.zeros(d, d, dtype=torch.float64)
            rows, columns = torch.triu_indices(d, d)
            whole[rows, columns] = kept["covariance"].double()
            whole[columns, rows] = kept["covariance"].double()
            found = replace(found, scatter=whole)
            found = replace(found, scatter=whole * max(1.0, found.freedom))
        return found

    def rounded(self) -> ClassStatistics:
        """As they are once they were stored."""
        return self.from_tensors(self.tensors())


def covariance(
    statistics: Sequence[ClassStatistics], within: Tensor, prior: float = PRIOR
) -> Tensor:
    """Σ of all these classes, `within` counting as much as `prior` pictures: (d, d).

    With a prior of 0 all directions count the same: Σ is one variance, (1,), and the nearest class
    mean decides. So it is if nothing else is known: `within` is (1,), and no scatter was kept.
    """
    within = within.cpu()
    if within.dim() == 1:
        if prior == 0 or all(each.scatter is None for each in statistics):
            return within.double()
        width = statistics[0].means.shape[1]
        within = within * torch.eye(width, dtype=within.dtype)
    if prior == 0:
        return within.diagonal().mean().double().view(1)
    whole, freedom = prior * within.double(), prior
    for each in statistics:
        if each.scatter is not None:
            whole, freedom = whole + each.scatter, freedom + each.freedom
    whole = whole / freedom
    ridge = RIDGE * float(whole.diagonal().mean()) or RIDGE  # one picture a class: no variance
    return whole + ridge * torch.eye(len(whole), dtype=whole.dtype)


def head(means: Tensor, spread: Tensor) -> Head:
    """Weight (classes, d) and bias (classes,) for means (classes, d) and Σ, (d, d) or (1,)."""
    rows = means.double()
    weight = rows / spread if spread.dim() == 1 else torch.linalg.solve(spread, rows.T).T
    bias = -0.5 * (weight * means).sum(1)
    return (weight - weight.mean(0)).float(), (bias - bias.mean()).float()


def discriminant(features: Tensor, labels: Tensor, within: Tensor, prior: float = PRIOR) -> Head:
    """The head that these features (n, d) with labels (n,) make.

    Args:
        features: (n, d).
        labels: (n,), from 0 to classes − 1, each of them at least once.
        within: (d, d), the covariance of features around the means of classes seen before.
        prior: The number of pictures that `within` counts as.
    """
    statistics = ClassStatistics.of(features, labels)
    return head(statistics.means, covariance([statistics], within, prior))


def nearest_class_mean(features: Tensor, labels: Tensor) -> Head:
    """The head whose largest score has the class with the nearest mean.

    |x − μ_c|² = |x|² − 2 (μ_c · x − ½ |μ_c|²), and |x|² is the same for all classes.
    """
    return discriminant(features, labels, torch.eye(features.shape[1]), prior=0.0)
