"""What the commands on stored predictions write: tables, a calibrator, applied predictions."""

from __future__ import annotations

import io
import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from calibration.calibrators import Calibrator
from calibration.calibrators.saving import ABOUT, load_calibrator, save_calibrator
from calibration.data.predictions import StoredPredictions
from sweeps.posthoc.evaluation import StoredEvaluation

OUTPUTS = (".npz", ".csv", ".parquet")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, making its directory.

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


def saved_winner(evaluation: StoredEvaluation) -> bytes:
    """The winner as JSON, with what one would want to know of it later."""
    row = evaluation.leaderboard[evaluation.leaderboard["winner"]].iloc[0]
    about = {
        "fitted_on": evaluation.notes[0] if evaluation.notes else evaluation.name,
        "chosen_by": "least cross-fitted validation NLL",
        "validation/nll": float(row["validation/nll"]),
        "class_names": list(evaluation.class_names),
    }
    saved = save_calibrator(evaluation.calibrators[evaluation.winner]) | {ABOUT: about}
    return (json.dumps(saved, indent=1, allow_nan=False) + "\n").encode()


def read_calibrator(path: Path) -> tuple[Calibrator, tuple[str, ...] | None]:
    """A saved calibrator and the names of its classes, where they are known.

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
    about = saved.get(ABOUT)
    names = about.get("class_names") if isinstance(about, dict) else None
    if not isinstance(names, list) or len(names) != saved["classes"]:
        return calibrator, None
    return calibrator, tuple(map(str, names))


def applied(output: Tensor, stored: StoredPredictions, suffix: str) -> bytes:
    """A calibrator's output as an NPZ, CSV or Parquet file.

    Columns ``class``, ``confidence`` and ``prob_CLASS`` for each class; arrays ``classes``
    (numbers), ``confidence``, ``probabilities`` and ``class_names``. A calibrator of the top label
    gives no probabilities. Class names are the user's own data and stay as they are, to be
    joined with other files: no apostrophe keeps a spreadsheet from computing ``=A1``.
    """
    rows = output.ndim == 2
    predicted = (output.numpy() if rows else stored.logits).argmax(-1)
    confidence = (output.amax(-1) if rows else output).numpy()
    buffer = io.BytesIO()
    if suffix == ".npz":
        arrays: dict[str, Any] = {"classes": predicted, "confidence": confidence}
        if rows:
            arrays["probabilities"] = output.numpy()
        np.savez_compressed(buffer, class_names=np.array(stored.class_names), **arrays)
        return buffer.getvalue()
    names = np.array(stored.class_names, dtype=object)
    frame = pd.DataFrame({"class": names[predicted], "confidence": confidence})
    if rows:
        columns = [f"prob_{name}" for name in stored.class_names]
        frame = pd.concat([frame, pd.DataFrame(output.numpy(), columns=columns)], axis=1)
    if suffix == ".csv":
        return frame.to_csv(index=False).encode()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
