"""The output files of the commands on stored predictions."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from calibration.calibrators import Calibrator
from calibration.calibrators.saving import ABOUT, load_calibrator, save_calibrator
from calibration.data.prediction_files import DeclaredKind
from calibration.data.predictions import StoredPredictions
from calibration.data.single_scores import SCORE_KINDS
from calibration.prior import Prior, deployment_prior
from sweeps.posthoc.evaluation import StoredEvaluation

OUTPUTS = (".npz", ".csv", ".parquet")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, creating its directory.

    Raises ``ValueError`` naming the file if it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror}") from None


class SavedCalibrator(NamedTuple):
    """A calibrator from a file, and the values saved with it, if any.

    ``shares`` are those of the classes among the rows it was fitted on, ``prior`` those by class
    for which its probabilities are corrected, ``score`` the declared meaning of a single score,
    ``aside`` the columns of groups and weights, which are not scores.
    """

    path: Path
    calibrator: Calibrator
    class_names: tuple[str, ...] | None
    shares: tuple[float, ...] | None
    prior: dict[str, float] | None
    score: tuple[DeclaredKind, str] | None
    aside: tuple[str, ...] = ()

    def prior_for(self, wanted: Mapping[str, float] | None) -> Prior | None:
        """The correction for ``wanted``, or else for the saved prior; None if there is neither.

        Raises ``ValueError`` if there are no probabilities, or no shares, to correct.
        """
        shares = self.prior if wanted is None else wanted
        if shares is None:
            return None
        check_correctable(self.calibrator)
        if self.shares is None or self.class_names is None:
            raise ValueError(
                f"--prior: {self.path} does not record the classes' frequencies among the rows "
                "it was fitted on; fit it again with calsweep posthoc --save"
            )
        return deployment_prior(shares, self.class_names, self.shares)


def check_correctable(calibrator: Calibrator) -> None:
    """Raise ``ValueError`` unless a calibrator gives probabilities of all classes."""
    if calibrator.top_label:
        raise ValueError(
            "--prior: the calibrator gives only the confidence of the predicted class, but "
            "probabilities of all classes are needed: fit another, calsweep posthoc --calibrators"
        )


def saved_winner(evaluation: StoredEvaluation, prior: Mapping[str, float] | None = None) -> bytes:
    """The winner as JSON, with its provenance.

    Raises ``ValueError`` if its output cannot be corrected for ``prior``.
    """
    row = evaluation.leaderboard[evaluation.leaderboard["winner"]].iloc[0]
    calibrator = evaluation.calibrators[evaluation.winner]
    about: dict[str, Any] = {
        "fitted_on": evaluation.notes[0] if evaluation.notes else evaluation.name,
        "chosen_by": "least cross-fitted validation NLL",
        "validation/nll": float(row["validation/nll"]),
        "class_names": list(evaluation.class_names),
        "class_shares": list(evaluation.fitted_shares),
    }
    if evaluation.score is not None:
        about["score"] = evaluation.score
    if evaluation.roles:
        about["rows"] = dict(evaluation.roles)
    if prior is not None:
        check_correctable(calibrator)
        deployment_prior(prior, evaluation.class_names, evaluation.fitted_shares)
        about["prior"] = dict(prior)
    saved = save_calibrator(calibrator) | {ABOUT: about}
    return (json.dumps(saved, indent=1, allow_nan=False) + "\n").encode()


def read_calibrator(path: Path) -> SavedCalibrator:
    """A saved calibrator.

    Raises ``ValueError`` naming the file if it is absent or not a saved calibrator.
    """
    try:
        saved: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file (looked for {path.absolute()})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a saved calibrator: {error}") from error
    try:
        calibrator = load_calibrator(saved)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    found = saved.get(ABOUT)
    about: dict[str, Any] = found if isinstance(found, dict) else {}
    roles = about.get("rows")
    names, shares = (_of_classes(about.get(n), saved) for n in ("class_names", "class_shares"))
    try:
        return SavedCalibrator(
            path,
            calibrator,
            None if names is None else tuple(map(str, names)),
            None if shares is None else tuple(map(float, shares)),
            _numbers(about.get("prior")),
            _score(about.get("score")),
            tuple(map(str, roles.values())) if isinstance(roles, dict) else (),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {ABOUT}: {error}") from error


def _of_classes(values: object, saved: Mapping[str, Any]) -> list[Any] | None:
    there = isinstance(values, list) and len(values) == saved["classes"]
    return values if there else None  # type: ignore[return-value]


def _numbers(values: object) -> dict[str, float] | None:
    if not isinstance(values, dict):
        return None
    return {str(name): float(value) for name, value in values.items()}


def _score(value: object) -> tuple[DeclaredKind, str] | None:
    """The declared meaning of a single score, if valid."""
    if not isinstance(value, dict) or value.get("kind") not in SCORE_KINDS:
        return None
    return value["kind"], str(value.get("positive"))


def applied(output: Tensor, stored: StoredPredictions, suffix: str) -> bytes:
    """A calibrator's output as an NPZ, CSV or Parquet file.

    First the kept columns: ids stay with their rows. Then columns ``class``, ``confidence`` and
    ``prob_CLASS`` for each class; arrays ``classes`` (numbers), ``confidence``,
    ``probabilities`` and ``class_names``. A calibrator of the top label gives no probabilities.
    Class names are the user's own data and stay unchanged, so that they can be joined with other
    files: no apostrophe keeps a spreadsheet from evaluating ``=A1``.
    """
    rows = output.ndim == 2
    predicted = (output.numpy() if rows else stored.logits).argmax(-1)
    confidence = (output.amax(-1) if rows else output).numpy()
    kept = {name: stored.carried[name] for name in kept_names(stored)}
    buffer = io.BytesIO()
    if suffix == ".npz":
        arrays: dict[str, Any] = {"classes": predicted, "confidence": confidence}
        if rows:
            arrays["probabilities"] = output.numpy()
        arrays |= {name: _plain(values) for name, values in kept.items()}
        np.savez_compressed(buffer, class_names=np.array(stored.class_names), **arrays)
        return buffer.getvalue()
    names = np.array(stored.class_names, dtype=object)
    frame = pd.DataFrame({**kept, "class": names[predicted], "confidence": confidence})
    if rows:
        columns = [f"prob_{name}" for name in stored.class_names]
        frame = pd.concat([frame, pd.DataFrame(output.numpy(), columns=columns)], axis=1)
    if suffix == ".csv":
        return frame.to_csv(index=False).encode()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def kept_names(stored: StoredPredictions) -> list[str]:
    """The columns of the file that stay with the rows: all except those named like a result."""
    ours = {"class", "classes", "confidence", "probabilities", "class_names", "file"}
    ours |= {f"prob_{name}" for name in stored.class_names}
    return [name for name in stored.carried if name not in ours]


def _plain(values: Any) -> Any:
    """An array without objects, which an NPZ file cannot hold."""
    array = np.asarray(values)
    return array.astype(str) if array.dtype.kind == "O" else array
