"""What a reader must know about how a dataset's rows are divided."""

from __future__ import annotations

from calibration.calibrators import CALIBRATORS
from calibration.data import Dataset
from calibration.row_notes import notes_on_groups, notes_on_weights


def data_notes(dataset: Dataset) -> list[str]:
    """Sentences on groups, given parts and weights; none for equal rows divided at random."""
    notes = []
    groups = dataset.test_groups
    if groups is not None:
        notes.append("No group is in two parts.")
        notes += notes_on_groups(groups, "the test part")
    if dataset.weighted:
        where = "in training and in what is measured and fitted"
        notes += notes_on_weights(where, CALIBRATORS)
    if dataset.fixed_split:
        notes.append(
            "The parts are given by the data and the same for every seed: the spread over seeds is "
            "that of training alone, and says nothing about other training data. A learner without "
            "randomness is trained once for all of them: its uncertainty is that of the test rows."
        )
    return notes
