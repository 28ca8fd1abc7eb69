"""The mean of each subject over repeated rounds if some of its rounds are missing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.inference.differences import FloatArray

Indices = NDArray[np.integer]
# The variance of the levels of participants, as a multiple of the variance of a value around its
# level. It is so large that only differences within participants tell how rounds differ. Rounds
# that no participant links are compared by their means.
_LEVEL_VARIANCE = 1e6


def average_over_rounds(
    values: FloatArray,
    rounds: Indices,
    subjects: Indices,
    participants: Indices,
    groups: Indices,
) -> FloatArray:
    """Return one value for each subject of a condition, shape (subjects,).

    - `values`: the known values, shape (n,).
    - `rounds`, `subjects`, `participants`: the index of each value's round, subject and
      participant, shape (n,). A participant is one subject or several. Each index starts at 0, and
      none is left out.
    - `groups`: the group of each value's round, shape (n,). A subject's mean refers to all rounds
      of the group in which it has values.

    The mean of the result is the estimate of the condition. Its variation between participants
    includes the error of the estimated levels of rounds, so that usual intervals hold.
    """
    # A value is the level of its participant, plus the level of its round, plus an error. So a
    # subject's mean is moved by the mean level of all rounds minus that of its own rounds. Added is
    # the subject's influence on the estimated levels, which is zero on average (as in a sandwich
    # estimator, clustered by participant). Without missing rounds nothing is moved or added.
    sizes = np.bincount(participants)
    shrinkage = _LEVEL_VARIANCE / (1 + sizes * _LEVEL_VARIANCE)

    def sum_within(row_values: FloatArray) -> FloatArray:
        # From each value, subtract (almost) the mean of its participant.
        totals = np.bincount(participants, row_values)
        return row_values - (shrinkage * totals)[participants]

    shape = len(sizes), int(rounds.max()) + 1
    counts = np.bincount(participants * shape[1] + rounds, minlength=shape[0] * shape[1])
    counts = counts.reshape(shape)
    information = np.diag(np.bincount(rounds)) - counts.T @ (shrinkage[:, None] * counts)
    levels = np.linalg.solve(information, np.bincount(rounds, sum_within(values)))

    subject_sizes = np.bincount(subjects)
    _, first_rows = np.unique(rounds, return_index=True)
    _, round_groups = np.unique(groups[first_rows], return_inverse=True)
    group_sizes = np.bincount(round_groups)
    group_levels = np.bincount(round_groups, levels) / group_sizes
    moved = values - levels[rounds] + group_levels[round_groups[rounds]]
    means = np.bincount(subjects, moved) / subject_sizes

    # The derivative of the mean over subjects by the level of each round.
    weights = 1 / (subject_sizes[subjects] * len(subject_sizes))
    group_weights = np.bincount(round_groups[rounds], weights, len(group_sizes))
    derivative = (group_weights / group_sizes)[round_groups] - np.bincount(rounds, weights)
    leverage = np.linalg.solve(information, derivative)
    influence = np.bincount(participants, sum_within(values - levels[rounds]) * leverage[rounds])
    # Each subject of a participant has an equal part of its influence.
    participant_of_subject = np.zeros(len(subject_sizes), int)
    participant_of_subject[subjects] = participants
    parts = np.bincount(participant_of_subject)[participant_of_subject]
    return means + len(subject_sizes) * influence[participant_of_subject] / parts
