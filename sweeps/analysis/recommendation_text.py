"""A recommendation in words, each sentence derived from its numbers.

Test data is only reported: if it does not show that the recommended row is better, the sentence
says so and still recommends it, since validation data chose it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calibration.hyperparameters import Value
from calibration.metrics import METRICS
from calibration.text import count
from sweeps.analysis.wording import listed, number, quoted

if TYPE_CHECKING:
    from sweeps.analysis.recommendation import Advice, Gain, Recommendation

TEMPERATURE = "temperature"
"""The calibrator to compare everything with: simple, and hard to beat."""
_CROSS_ENTROPY = "plain cross-entropy"


def first_sentence(advice: Advice) -> str:
    """What to use, what that gains, how surely, and at what cost."""
    where = f"On {advice.dataset}"
    if not advice.row:
        return f"{where}, nothing can be recommended{_yet(advice)}: {_no_winner(advice)}."
    settings = _settings(advice.settings)
    if advice.candidates == 1:
        return f"{where}, {quoted(advice.label)}{settings} is the only candidate. {_result(advice)}"
    if advice.row == advice.plain and advice.calibrator == TEMPERATURE:
        unbeaten = f"nothing beat {_plain(advice)} with temperature: use that"
    elif advice.row == advice.plain and advice.calibrator == "identity":
        unbeaten = f"nothing beat {_plain(advice)} as it is: use that, without a calibrator"
    else:
        return f"{where}, use {quoted(advice.label)}{settings}: {_lower(_result(advice))}"
    return f"{where}, {unbeaten}{settings}. {_result(advice)}"


def further_sentences(advice: Advice) -> str:
    """ECE, the reason for the choice, the runner-up, and caveats."""
    if not advice.row:
        return ""
    return " ".join(filter(None, [_ece(advice), _reason(advice), _next(advice), _caution(advice)]))


def overall_sentence(recommendation: Recommendation) -> str:
    """The sentence of the only dataset, or one that covers several."""
    everywhere = recommendation.datasets
    if not everywhere:
        return "Nothing can be recommended: the sweep has no dataset."
    if len(everywhere) == 1:
        return everywhere[0].sentence
    by_label: dict[str, list[str]] = {}
    for advice in everywhere:
        by_label.setdefault(advice.label if advice.row else "", []).append(advice.dataset)
    without = by_label.pop("", [])
    if not by_label:
        return f"Nothing can be recommended on any of the {len(everywhere)} datasets."
    gap = f"; nothing can be recommended on {listed(without)}" if without else ""
    if len(by_label) == 1 and not without:
        both = "both" if len(everywhere) == 2 else f"all {len(everywhere)}"
        return f"On {both} datasets, use {quoted(next(iter(by_label)))}."
    each = "; ".join(f"{quoted(name)} on {listed(where)}" for name, where in by_label.items())
    return f"Use {each}{gap}.{_one_for_all(recommendation, len(by_label))}"


def _one_for_all(recommendation: Recommendation, different: int) -> str:
    name, where = recommendation.serving
    if different < 2 or where < 2:
        return ""
    of = len(recommendation.datasets)
    on = f"all {of}" if where == of else f"{where} of {of}"
    return (
        f" If one is to serve everywhere: validation data cannot tell {quoted(name)} from the best "
        f"on {on} datasets."
    )


def _yet(advice: Advice) -> str:
    return " yet" if advice.remaining else ""


def _no_winner(advice: Advice) -> str:
    if not advice.confirmed:
        return "no trained network has been confirmed"
    return "no row has a validation NLL on all seeds"


def _settings(settings: Mapping[str, Value]) -> str:
    shown = [f"{name} {_value(value)}" for name, value in settings.items()]
    return f" ({', '.join(shown)})" if shown else ""


def _value(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _plain(advice: Advice) -> str:
    """The plain network; by its row's name if there are several."""
    if advice.plain_rows > 1 and advice.plain is not None:
        return f"the plain row {quoted(advice.plain)}"
    return _CROSS_ENTROPY


def _references(advice: Advice, gains: Sequence[Gain]) -> list[str]:
    """``of plain cross-entropy`` and ``with temperature``; a lone second is named in full."""
    names: list[str] = []
    for gain in gains:
        with_calibrator = "" if gain.calibrator == "identity" else f" with {gain.calibrator}"
        named = names and with_calibrator
        names.append(with_calibrator.strip() if named else f"of {_plain(advice)}{with_calibrator}")
    return names


def _result(advice: Advice) -> str:
    """A sentence: the NLL against the plain network's, and the cost."""
    measured = _measured(advice, "nll")
    if not advice.gains:
        return f"{measured}; {_nothing_to_compare(advice)}."
    return f"{measured}{_cost(advice)}."


def _measured(advice: Advice, metric: str) -> str:
    """``Its mean test NLL over 5 seeds, 0.301, is 0.1 [0.08, 0.12] below that of …``."""
    title, value = METRICS.title(metric), advice.values.get(metric, math.nan)
    gains = [gain for gain in advice.gains if gain.metric == metric]
    mean = f"mean test {title} over {count(advice.seeds, 'seed')}"
    if advice.seeds == 1:
        mean = f"test {title} on its only seed"
    if not gains or not all(math.isfinite(g.ours) and math.isfinite(g.theirs) for g in gains):
        names = _references(advice, gains)
        against = [
            f"{number(gain.theirs)} {name}{_verdict(gain, advice.seeds)}"
            for gain, name in zip(gains, names, strict=True)
        ]
        beside = f", against {' and '.join(against)}" if against else ""
        return f"Its {mean} is {number(value)}{beside}"
    apart = [
        f"{_apart(gain)} that {name}{_verdict(gain, advice.seeds)}"
        for gain, name in zip(gains, _references(advice, gains), strict=True)
    ]
    return f"Its {mean}, {number(value)}, is {' and '.join(apart)}"


def _apart(gain: Gain) -> str:
    """``0.101 [0.080, 0.122] below``: lower is better in all that is gained."""
    if gain.difference == 0:
        return "equal to"
    low, high = gain.low, gain.high
    word = "above"
    if gain.difference < 0:
        low, high, word = -gain.high, -gain.low, "below"
    bounds = "" if math.isnan(low) or math.isnan(high) else f" [{_signed(low)}, {_signed(high)}]"
    return f"{number(abs(gain.difference))}{bounds} {word}"


def _signed(value: float) -> str:
    return number(value).replace("-", "−")


def _verdict(gain: Gain, seeds: int) -> str:
    fewer = f"on {count(gain.pairs, 'common seed')}" if gain.pairs < seeds else ""
    return f" ({'; '.join(filter(None, [gain.verdict, gain.would_decide, fewer]))})"


def _cost(advice: Advice) -> str:
    """Training time and hyperparameters beyond the plain row's."""
    if advice.row == advice.plain:
        return "" if advice.calibrator == "identity" else ", for the same training"
    extra = f"{len(advice.extra) or 'no'} further {_plural('hyperparameter', advice.extra)}"
    ratio = advice.relative_time
    if math.isnan(ratio):
        return f", with {extra} to search"
    if 0.9 <= ratio <= 1.1:
        return f", for about the same training time and {extra} to search"
    return f", for {ratio:.2g} times the training time and {extra} to search"


def _nothing_to_compare(advice: Advice) -> str:
    if advice.plain is None:
        return f"the sweep has no row of {_CROSS_ENTROPY} to compare it with"
    if not advice.plain_calibrators:
        return f"{_plain(advice)} has no result to compare it with"
    return f"there is nothing else of {_plain(advice)} to compare it with"


def _ece(advice: Advice) -> str:
    return "" if math.isnan(advice.values.get("ece", math.nan)) else f"{_measured(advice, 'ece')}."


def _reason(advice: Advice) -> str:
    if advice.candidates < 2:
        return ""
    lowest = f"It has the lowest validation NLL of {advice.candidates} candidates"
    if advice.seeds == 1:
        return f"{lowest}; a single seed does not show how much of that is chance."
    noise = f"within noise (one standard error, at most {advice.region:g})"
    others = advice.tied - 1
    if advice.best == advice.label:
        if not others:
            return f"{lowest}; no other is {noise} of it."
        simpler = "which is not simpler" if others == 1 else "none of which is simpler"
        return f"{lowest}; {count(others, 'other')} {_are(others)} {noise} of it, {simpler}."
    return (
        f"Of {advice.candidates} candidates, {advice.tied} are {noise} of the lowest validation "
        f"NLL, that of {quoted(advice.best)}; none of these is simpler."
    )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _next(advice: Advice) -> str:
    runner_up = advice.runner_up
    if runner_up is None:
        return ""
    gap, error, _ = runner_up.standing
    if not math.isfinite(gap):
        return f"Runner-up: {quoted(runner_up.label)}."
    spread = "" if math.isnan(error) else f" ± {number(error)}"
    words = "the same validation NLL"
    if gap:
        words = f"validation NLL {number(abs(gap))}{spread} {'higher' if gap > 0 else 'lower'}"
    return f"Runner-up: {quoted(runner_up.label)} ({words})."


def _caution(advice: Advice) -> str:
    notes = []
    if advice.plain_calibrators and TEMPERATURE not in advice.plain_calibrators:
        notes.append(f"{_plain(advice)} with temperature was not measured")
    if any(gain.metric == "nll" and gain.difference > 0 for gain in advice.gains):
        notes.append("it was chosen on validation data; on test data its NLL is not the lowest")
    if advice.remaining:
        notes.append(
            f"the sweep is unfinished ({count(advice.remaining, 'trial')} to come), so this "
            "may change"
        )
    return " ".join(f"{note[0].upper()}{note[1:]}." for note in notes)


def _plural(noun: str, things: Sequence[str]) -> str:
    return noun if len(things) == 1 else f"{noun}s"


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
