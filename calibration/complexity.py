"""The complexity of methods and calibrators: the two scales that break ties.

If validation data cannot distinguish two results, the simpler one is chosen. Complexity is what
a user has to understand, set and maintain, not a number of parameters: isotonic and kernel
regression have none to count. So each class declares its place on an ordinal scale as
``complexity``, or inherits that of its family. Only the order matters; methods are compared
with methods, calibrators with calibrators. A class of another package that declares nothing
ranks highest: a tie is never broken in favour of an unknown.
"""

from __future__ import annotations

from enum import IntEnum


class MethodComplexity(IntEnum):
    """The kind of learner, and what a method adds to plain training of a network."""

    LINEAR = 0
    """One weight per input and class: logistic regression."""
    TREES = 1
    """Many trees, summed or averaged; inputs need no scaling, missing values no imputation."""
    PLAIN = 2
    """A network trained with cross-entropy."""
    ROWS = 3
    """A fixed formula replaces cross-entropy or the rows: focal loss, mixup."""
    BATCH = 4
    """A batch-level term, or targets that evolve during training: results depend on the
    batch size or on what was seen before."""
    HELD_OUT = 5
    """Also learns from held-out rows, which leaves fewer training rows."""
    BILEVEL = 6
    """Differentiates through training steps: a second optimiser with its own settings."""


class CalibratorComplexity(IntEnum):
    """What a calibrator fits to the validation rows."""

    NONE = 0
    """Nothing: the network's softmax as it is."""
    ONE_NUMBER = 1
    """One number for all classes: temperature."""
    FEW_NUMBERS = 2
    """A few numbers, independent of the number of classes."""
    PER_CLASS = 3
    """Numbers for every class: Platt scaling, vector scaling."""
    PER_PAIR = 4
    """Numbers for every pair of classes: matrix scaling."""
    PIECES = 5
    """A curve with a fixed number of pieces: histogram binning, splines."""
    FREE = 6
    """A curve with as many pieces as the rows require, to be stored with the model: isotonic
    and kernel regression."""
