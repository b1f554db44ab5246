"""The Parquet table of a trial's predictions."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import torch

from sweeps.tracking.mlflow.predictions_table import predictions_parquet
from tests.tracked import predictions


def test_predictions_are_a_table_of_what_is_stored() -> None:
    stored = predictions()
    table = pd.read_parquet(io.BytesIO(predictions_parquet(stored)))
    assert list(table["part"]) == ["validation"] * 6 + ["test"] * 8
    logits = torch.cat([stored["validation_logits"], stored["test_logits"]])
    assert table["label"].tolist() == [i % 5 for i in [*range(6), *range(8)]]
    assert table["predicted"].tolist() == logits.argmax(-1).tolist()
    assert torch.equal(torch.from_numpy(np.stack(table["logits"])), logits)
    top = logits.softmax(-1).max(-1).values
    torch.testing.assert_close(torch.tensor(table["confidence"].to_numpy()), top)
    assert table["posterior"][:6].isna().all()
    assert torch.equal(torch.from_numpy(np.stack(table["posterior"][6:])), stored["test_posterior"])
