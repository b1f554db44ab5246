"""How complex methods and calibrators are: the two scales that decide between equals.

Where validation data cannot tell two results apart, the simpler one is taken. Complexity is
what a user has to understand, set and keep right, not a number of parameters: isotonic and
kernel regression have none to count. So each class declares its place on an ordinal scale as
``complexity``, or inherits that of its family. Only the order matters; methods are compared
with methods, calibrators with calibrators. A class of another package that declares nothing has
the highest place: a tie is never broken in favour of an unknown.
"""

from __future__ import annotations

from enum import IntEnum


class MethodComplexity(IntEnum):
    """What a learner is, and what a method adds to a network's plain training."""

    LINEAR = 0
    """One weight for every input and class: logistic regression."""
    TREES = 1
    """Many trees, added or averaged; inputs need no scaling and gaps no filling."""
    PLAIN = 2
    """A network, trained by cross-entropy."""
    ROWS = 3
    """A fixed formula in place of cross-entropy or of the rows: focal loss, mixup."""
    BATCH = 4
    """A term of whole batches, or targets that follow the training: results depend on the
    batch size or on what was seen before."""
    HELD_OUT = 5
    """Learns from held-out rows beside the training rows, which then are fewer."""
    BILEVEL = 6
    """Differentiates through training steps: a second optimiser with settings of its own."""


class CalibratorComplexity(IntEnum):
    """What a calibrator fits to the validation rows."""

    NONE = 0
    """Nothing: the network's own softmax."""
    ONE_NUMBER = 1
    """One number for all classes: temperature."""
    FEW_NUMBERS = 2
    """Some numbers, as many whatever the number of classes."""
    PER_CLASS = 3
    """Numbers for every class: Platt scaling, vector scaling."""
    PER_PAIR = 4
    """Numbers for every pair of classes: matrix scaling."""
    PIECES = 5
    """A curve of a fixed number of pieces: histogram binning, splines."""
    FREE = 6
    """A curve with as many pieces as the rows ask for, to be stored with the model: isotonic
    and kernel regression."""
