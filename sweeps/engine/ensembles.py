"""The evaluation of a cell's ensemble, from the stored predictions of its members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calibration.calibrators import CALIBRATORS
from calibration.ensembles import Member, evaluate_ensemble
from calibration.evaluation import CalibratorEvaluation
from calibration.threads import threads
from sweeps.engine.evaluation import as_record, missing_evaluations
from sweeps.engine.identity import TrialConfig
from sweeps.engine.predictions import labelled
from sweeps.spec.schema import Evaluation
from sweeps.store import Store, TrialRecord
from sweeps.store.ensembles import ensemble_name, reduced_name


class EnsembleEvaluation:
    """Evaluates the ensemble of a cell's confirm trials, which differ only in their seeds."""

    def __init__(
        self, config: TrialConfig, seeds: Sequence[int], store: Store, evaluation: Evaluation
    ) -> None:
        self.config = config
        self.seeds = seeds
        self.store = store
        self.evaluation = evaluation

    def missing(
        self, calibrators: Iterable[str], *, failed: bool = True
    ) -> tuple[list[TrialRecord], list[str]]:
        """The members, and the calibrators whose ensemble has no current evaluation.

        Nothing is missing while a member has no record; if one failed, there is no ensemble.
        """
        members = []
        for seed in self.seeds:
            record = self.store.record(self.config.model_copy(update={"seed": seed}).key())
            if record is None or record.status != "done":
                return [], []
            members.append(record)
        there = self.store.evaluations(members[0], self.evaluation.tag)
        # A calibrator of the top label alone leaves nothing to pool.
        names = {
            ensemble_name(len(members), name): name
            for name in calibrators
            if not CALIBRATORS[name].top_label
        }
        return members, [names[name] for name in missing_evaluations(there, names, failed=failed)]

    def complete(self, calibrators: Iterable[str]) -> None:
        """Evaluate what is missing, if every member is done: the last one to end does it."""
        records, missing = self.missing(calibrators)
        if not missing:
            return
        members = [self._member(record) for record in records]
        with threads(1):
            for calibrator in missing:
                self._evaluate(calibrator, records, members)

    def _evaluate(
        self, calibrator: str, records: Sequence[TrialRecord], members: Sequence[Member]
    ) -> None:
        others: list[CalibratorEvaluation] = []

        def evaluate() -> CalibratorEvaluation:
            whole, reduced = evaluate_ensemble(
                calibrator, members, bins=self.evaluation.bins, seed=self.seeds[0]
            )
            others.extend(reduced)
            return whole

        size, tag = len(records), self.evaluation.tag
        name, part = ensemble_name(size, calibrator), reduced_name(size, calibrator)
        found, _ = as_record(name, evaluate)  # what is never compared needs no row scores
        # The whole last: where it is, all are.
        for record, reduced in zip(records, others, strict=False):  # none, if it failed
            kept, _ = as_record(part, lambda reduced=reduced: reduced)  # type: ignore[misc]
            self.store.write_evaluation(record.key, tag, part, kept)
        self.store.write_evaluation(records[0].key, tag, name, found)

    def _member(self, record: TrialRecord) -> Member:
        arrays = self.store.predictions(record)
        return Member(labelled("validation", arrays), labelled("test", arrays))
