"""What the words of a report mean, for who meets them first."""

from __future__ import annotations

from html import escape

_WORDS = {
    "Calibrated": "Of the predictions made with confidence 0.8, eight in ten are right; so for "
    "every confidence.",
    "ECE": "Expected calibration error: test points are put into {bins} bins by their confidence; "
    "the gap between mean confidence and accuracy of a bin, averaged over the points. 0 is "
    "perfect, but no finite test set reads 0.",
    "Noise floor": "The ECE that a row's confidences would show on so many test points if they "
    "were calibrated: correctness is drawn anew with those confidences, 200 times, and the mean "
    "taken. An ECE near its floor is as good as it gets. The floor of an over-confident row is "
    "too low, for it is computed from that row's own confidences.",
    "Not perfectly calibrated": "The mean ECE over seeds lies above what chance gives a calibrated "
    "model in 95 of 100 cases. The interval over seeds, which asks what other seeds would give, "
    "can still hold the floor.",
    "NLL, Brier": "Proper scores: they reward calibration and sharpness together and cannot be "
    "improved by trading one for the other. A row that is good in ECE only may just be vague.",
    "95 % interval": "Over seeds (Student's t, with Nadeau and Bengio's correction where training "
    "sets overlap); with a single seed it is a bootstrap over test points instead. Where all seeds "
    "share one test set, intervals and tests speak of these test points, not of others.",
    "Verdict": "Every row, with the one calibrator chosen for it on validation data, is compared "
    "with the baseline and the calibrator chosen for that; as it is, with the baseline as it is; "
    "unless the report was asked for exactly one row and calibrator. It is a t-test paired over "
    "seeds; p-values are corrected for all rows and the metrics of a dataset’s sentences (Holm), "
    "so that all of these are right in 95 of 100 cases. “Better” and “worse” mean a corrected p "
    "below 0.05. “No difference shown” does not mean that there is none: few seeds show large "
    "differences only.",
    "★": "The row that validation data chose, by cross-fitted NLL over the confirmed seeds. Test "
    "data took no part in any choice; it only reports.",
    "row + calibrator": "A trained network whose outputs went through a calibrator (temperature, "
    "isotonic, …) fitted on validation data.",
    "did not converge": "The fit of the calibrator did not reach an optimum: often there is none, "
    "as for a temperature where every validation row is ranked right. A calibrator whose fit makes "
    "NLL worse on its own data is left out, and the row is that of the network as it is.",
    "oracle": "The true posterior of a synthetic dataset, on the same test points: nobody can do "
    "better but by luck.",
}


def glossary_html(bins: int) -> str:
    """The words and their meanings."""
    pairs = "".join(
        f"<dt>{escape(word)}</dt><dd>{escape(meaning.format(bins=bins))}</dd>"
        for word, meaning in _WORDS.items()
    )
    return f'<dl class="words">{pairs}</dl>'
