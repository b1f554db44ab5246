"""The evaluation of a confirmed trial: every calibrator, from its stored predictions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from calibration.evaluation import (
    CalibratorEvaluation,
    LabelledLogits,
    evaluate_calibrator,
    evaluate_oracle,
    evaluation_version,
)
from calibration.metrics.row_scores import RowScores
from calibration.text import visible
from calibration.threads import threads
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import dataset_of, load_network
from sweeps.engine.predictions import labelled
from sweeps.spec import ORACLE
from sweeps.spec.schema import Evaluation
from sweeps.store import EvaluationRecord, Store, StoreError, TrialRecord
from sweeps.store.ensembles import calibrator_of


def missing_evaluations(
    there: Mapping[str, EvaluationRecord],
    wanted: Iterable[str],
    *,
    failed: bool = True,
    outdated: bool = True,
) -> list[str]:
    """The wanted calibrators that lack an evaluation, or have one that does not count.

    One that ``failed`` or is ``outdated`` does not count, unless these are False.
    """
    # The oracle's evaluation is made with that of the bare network, which records it.
    plain = there.get("identity")
    lost = plain is not None and plain.has_oracle and ORACLE not in there
    return [
        name
        for name in wanted
        if name not in there
        or (name == "identity" and lost)
        or (outdated and is_outdated(name, there[name]))
        or (failed and there[name].failed)
    ]


def is_outdated(name: str, evaluation: EvaluationRecord) -> bool:
    """Whether another version of a metric or of the calibrator made a stored evaluation."""
    return evaluation.version != current_version(name)


def current_version(name: str) -> str:
    """The version of an evaluation made now; the oracle's depends on the metrics alone."""
    return evaluation_version("identity" if name == ORACLE else calibrator_of(name))


def as_record(
    name: str, evaluate: Callable[[], CalibratorEvaluation], *, has_oracle: bool = False
) -> tuple[EvaluationRecord, RowScores | None]:
    """The result of ``evaluate`` as it is stored, or why it failed; and its row scores."""
    about: dict[str, Any] = {"version": current_version(name), "has_oracle": has_oracle}
    try:
        measured = evaluate()
        values = asdict(replace(measured, rows=None))
        del values["rows"]
        return EvaluationRecord(**values, made=time.time(), **about), measured.rows
    except StoreError:
        raise
    except Exception as error:  # a user's own calibrator or metric may raise anything
        reason = f"{type(error).__name__}: {error}"
        return EvaluationRecord(failed=reason, made=time.time(), **about), None


class TrialEvaluation:
    """Evaluates calibrators of one trial whose record is in the store."""

    def __init__(
        self, config: TrialConfig, record: TrialRecord, store: Store, evaluation: Evaluation
    ) -> None:
        self.config = config
        self.record = record
        self.store = store
        self.evaluation = evaluation

    def complete(self, wanted: Iterable[str]) -> None:
        """Evaluate those of the wanted calibrators that lack a current evaluation."""
        there = self.store.evaluations(self.record, self.evaluation.tag)
        missing = missing_evaluations(there, wanted)
        if not missing:
            return
        arrays = self.store.predictions(self.record)
        validation, test = labelled("validation", arrays), labelled("test", arrays)
        with threads(1):  # an evaluation is the same whatever its network was trained with
            self._evaluate(missing, validation, test)

    def _evaluate(
        self, missing: list[str], validation: LabelledLogits, test: LabelledLogits
    ) -> None:
        # The picture first: if the process is killed on the way, a calibrator is still missing, and
        # the next attempt comes here again.
        self._draw(test)
        how = {"bins": self.evaluation.bins, "seed": self.config.seed}
        # Where the posterior is known: what no method can beat, measured in the same way.
        has_oracle = test.posterior is not None
        if "identity" in missing and has_oracle:
            self._record(ORACLE, lambda: evaluate_oracle(test, large=self._large_test, **how))
        for name in missing:
            self._record(
                name,
                lambda name=name: evaluate_calibrator(  # type: ignore[misc]
                    name, validation, test, large=self._large_test, **how
                ),
                has_oracle=has_oracle and name == "identity",
            )

    def _record(
        self, name: str, evaluate: Callable[[], CalibratorEvaluation], *, has_oracle: bool = False
    ) -> None:
        found, rows = as_record(name, evaluate, has_oracle=has_oracle)
        self.store.write_evaluation(self.record.key, self.evaluation.tag, name, found, rows)

    @cached_property
    def _large_test(self) -> LabelledLogits | None:
        """Predictions on further test rows, if they are requested and can be drawn."""
        if not self.evaluation.large_test:
            return None
        dataset = dataset_of(self.config, self.store)
        rows = dataset.large_test(self.config.seed, self.evaluation.large_test)
        if rows is None:
            return None
        logits = load_network(self.config, self.record, self.store).predict(rows)
        return LabelledLogits(logits, rows.labels, dataset.posterior(rows.inputs))

    def _draw(self, test: LabelledLogits) -> None:
        """Store a reliability diagram; a trial is not lost because it cannot be drawn."""
        from calibration import plots  # matplotlib is slow to import; search trials need none

        title = f"{self.config.method} on {self.config.dataset_name}, seed {self.config.seed}"
        confidence, predicted = test.logits.double().softmax(-1).max(-1)
        try:
            figure = plots.reliability_diagram(
                confidence,
                predicted == test.labels,
                bins=self.evaluation.bins,
                groups=test.groups,
                title=title,
            )
            picture = plots.png(figure)
        except Exception as error:
            logging.getLogger("calsweep").warning(
                "%s: reliability.png could not be drawn: %s: %s",
                *map(visible, (title, type(error).__name__, str(error))),
            )
            return
        self.store.write_extra(self.record.key, "reliability.png", picture)
