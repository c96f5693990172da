"""Numbers read off the accuracy matrix: R[i][j] is the accuracy on task j after learning task i.

Averages over "all but the last task" divide by T − 1 (GPM, WSN); GEM and La-MAML divide by T.
"""

from __future__ import annotations

from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]  # row i has i + 1 entries, in percent


def accuracy(matrix: Matrix) -> float:
    """ACC: the mean over tasks after the last one."""
    return _mean(matrix[-1])


def learning_accuracy(matrix: Matrix) -> float:
    """The mean of the diagonal: each task just after it was learned."""
    return _mean([row[-1] for row in matrix])


def bwt(matrix: Matrix) -> float:
    """Backward transfer: R[T][j] − R[j][j], the mean over j < T. Negative is forgetting."""
    last = matrix[-1]
    return _mean([last[j] - matrix[j][j] for j in range(len(last) - 1)])


def bti(matrix: Matrix) -> float:
    """Backward transfer and interference with the paper's sign: positive is forgetting."""
    return 0.0 - bwt(matrix)


def forgetting(matrix: Matrix) -> float:
    """The best accuracy a task ever had minus its last one, the mean over j < T."""
    last = matrix[-1]
    best = [max(row[j] for row in matrix[j:]) for j in range(len(last))]
    return _mean([best[j] - last[j] for j in range(len(last) - 1)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
