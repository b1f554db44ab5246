"""The model card: what an exported model is, how good it is, and what it is not good for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from calibration.abstention import Accepted
from sweeps.export.package import Package
from sweeps.statistics import mean_interval

METRICS = {
    "error": "error",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "ace": "ACE",
    "classwise_ece": "class-wise ECE",
}
FEW_ROWS = 50
MANY_CLASSES = 30


def card(package: Package, out: Path) -> str:
    """The card as Markdown. Test figures in it report; nothing was chosen by them."""
    sections = {
        "": _introduction(package),
        "Data": _data(package),
        "Training": _training(package),
        "Results on test rows": _results(package),
        "Abstention": _abstention(package),
        "How it was chosen": _choice(package),
        "What it is not good for": _limits(package),
        "How to use it": _use(package, out),
        "Where it comes from": _origin(package),
    }
    blocks = []
    for title, lines in sections.items():
        blocks.append("\n".join([*([f"## {title}", ""] if title else []), *lines]))
    return "\n\n".join(blocks) + "\n"


def _introduction(package: Package) -> Iterator[str]:
    about, classes = package.description.about, package.description.class_names
    yield f"# {_text(about['row'])} on {_text(about['dataset'])}"
    yield ""
    network = f"a `{_text(package.description.network.name)}` network trained by"
    yield (
        f"A calibrated classifier of {len(classes)} classes: {network} "
        f"`{_text(about['method'])}`, {_map(package)}, and a threshold on the confidence below "
        "which it abstains. A confidence of 0.8 is meant to be right in 8 cases of 10."
    )


def _map(package: Package) -> str:
    name = package.chosen.post_hoc
    if name == "identity":
        return "without a post-hoc map"
    return f"its output calibrated by the post-hoc map `{_text(name)}`"


def _data(package: Package) -> Iterator[str]:
    about, description, rows = package.description.about, package.description, package.rows
    yield from _table(
        {
            "dataset": f"`{_text(about['dataset'])}`",
            "fingerprint (SHA-256)": f"`{about['fingerprint']}`",
            "rows": ", ".join(f"{count} {part}" for part, count in rows.items()),
            "inputs": _inputs(package),
            "classes (share of training rows)": _classes(package),
        }
    )
    if description.inputs.optional:
        yield ""
        optional = ", ".join(f"`{_text(name)}`" for name in description.inputs.optional)
        yield f"Values missing in training too, so these columns may be left out: {optional}."


def _inputs(package: Package) -> str:
    inputs = package.description.inputs
    if inputs.by_position:
        return f"{inputs.dtype} of shape (N, {', '.join(map(str, inputs.shape))})"
    shown = [f"`{_text(c.name)}` ({c.kind})" for c in inputs.columns[:MANY_CLASSES]]
    more = len(inputs.columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _classes(package: Package) -> str:
    shares = package.train_share.tolist()
    names = package.description.class_names
    pairs = list(zip(names, shares, strict=True))[:MANY_CLASSES]
    more = len(names) - len(pairs)
    shown = ", ".join(f"`{_text(name)}` ({share:.1%})" for name, share in pairs)
    return shown + (f" and {more} more" if more else "")


def _training(package: Package) -> Iterator[str]:
    description, about = package.description, package.description.about
    yield from _table(
        {
            "method": f"`{_text(about['method'])}`: {_settings(about['hyperparameters'])}",
            "network": f"`{_text(description.network.name)}`: "
            f"{_settings(description.network.options)}",
            "training": _settings(about["training"]),
            "post-hoc map": f"`{_text(package.chosen.post_hoc)}`, fitted on all "
            f"{package.rows['validation']} validation rows",
            "seed": str(about["seed"]),
        }
    )


def _results(package: Package) -> Iterator[str]:
    evaluation, seeds = package.chosen.evaluation, package.chosen.seeds
    count = len(seeds)
    yield f"| | this network | mean over {count} seed{'s' if count > 1 else ''} |"
    yield "|---|---|---|"
    for metric, name in METRICS.items():
        if metric not in evaluation["test"]:
            continue
        own = _interval(float(evaluation["test"][metric]), evaluation["intervals"].get(metric))
        low, high = mean_interval(seeds[metric], correlation_ratio=package.overlap)
        interval = (low if math.isnan(low) else max(0.0, low), high)  # none of them is negative
        yield f"| {name} | {own} | {_interval(float(seeds[metric].mean()), interval)} |"
    mean, high = (float(value) for value in evaluation["floor"])
    averages = f"{seeds['floor'].mean():.4f} (95 % quantile {seeds['floor_q95'].mean():.4f})"
    yield f"| ECE's noise floor | {mean:.4f} (95 % quantile {high:.4f}) | {averages} |"
    yield ""
    yield (
        f"In brackets: 95 % intervals, by bootstrap over the {package.rows['test']} test rows for "
        "this network and over seeds for the mean. The noise floor is the ECE that these "
        "confidences would show by chance if they were perfectly calibrated: an ECE near it is as "
        "good as can be told from so many rows."
    )


def _abstention(package: Package) -> Iterator[str]:
    wish, threshold = package.wish, package.description.threshold
    if wish.accuracy is None and wish.coverage is None:
        yield "No threshold was asked for: it never abstains (`abstain` is always false)."
        return
    yield f"It abstains where the confidence is below **{threshold:.6g}**, so chosen that"
    yield ""
    if wish.accuracy is not None:
        yield (
            f"- with 95 % confidence at least {wish.accuracy:.1%} of the accepted rows are right: "
            "the lowest threshold that passes exact binomial tests in a fixed sequence from high "
            "confidence down."
        )
        yield (
            "- The promise is about rows drawn like the validation rows, on the average over all "
            "of them: not about a class or group among them, nor about shifted data. It takes the "
            "validation rows for independent of the network; but they also chose its epoch, its "
            "settings and its map, so it is a little too optimistic. And it was found with "
            "cross-fitted maps, while the model has the one map fitted on all of them. The test "
            "rows below are the independent check."
        )
        if package.description.about["protocol"]["share_validation"]:
            yield (
                "- By this sweep's protocol the training method may have learned on the very same "
                "rows: then the promise is worth less still."
            )
    else:
        yield f"- a share of {wish.coverage:.1%} of the validation rows is accepted."
    yield ""
    yield "| | rows | accepted | right among the accepted |"
    yield "|---|---|---|---|"
    yield _accepted("validation (chosen on these)", package.on_validation)
    yield _accepted("test", package.on_test)
    yield ""
    yield "In brackets: 95 % intervals (Wilson)."


def _accepted(name: str, found: Accepted) -> str:
    coverage = _interval(found.coverage, found.coverage_interval)
    accuracy = _interval(found.accuracy, found.accuracy_interval)
    return f"| {name} | {found.rows} | {coverage} | {accuracy} |"


def _choice(package: Package) -> Iterator[str]:
    chosen = package.chosen
    if chosen.is_winner:
        yield (
            f"On validation data only: `{_text(chosen.label)}` has the lowest cross-fitted "
            "validation NLL of all training methods and post-hoc maps of the sweep, averaged over "
            "its seeds."
        )
    else:
        yield f"By hand: `{_text(chosen.label)}` was asked for and is not the sweep's winner."
    if chosen.by_hand:
        yield "Its seed was asked for, too."
    else:
        yield (
            "Of its networks this is the one with the lowest cross-fitted validation NLL. Each "
            "seed has validation rows of its own, so that is partly luck: expect the mean over "
            "seeds of new rows rather than this network's own figures."
        )
    yield (
        "The hyperparameters were searched with another seed, on its validation rows. Test data "
        "chose nothing."
    )


def _limits(package: Package) -> Iterator[str]:
    description = package.description
    low, high = package.test_range
    yield (
        "- Other populations and shifted data: its confidences are calibrated for rows drawn like "
        f"those of `{_text(description.about['dataset'])}` and can be far off elsewhere, also "
        "where only the classes' frequencies differ."
    )
    yield (
        "- Classes that it has not seen: it knows the "
        f"{len(description.class_names)} above and puts everything into one of them, possibly with "
        "high confidence."
    )
    yield (
        "- Groups within the data: it is calibrated on the average; nothing was measured for "
        "subgroups."
    )
    counts = (package.train_share * package.rows["training"]).round().int().tolist()
    rare = [n for n, c in zip(description.class_names, counts, strict=True) if c < FEW_ROWS]
    if rare:
        shown = ", ".join(f"`{_text(name)}`" for name in rare[:MANY_CLASSES])
        yield f"- Rare classes: fewer than {FEW_ROWS} training rows of {shown}."
    yield (
        f"- Confidences that were not seen: those of the {package.rows['test']} test rows lie "
        f"between {low:.4f} and {high:.4f}; nothing is known about rows outside."
    )
    if any(column.kind == "categorical" for column in description.inputs.columns):
        yield (
            "- Categories that it has not seen are taken for none of the known ones, without a "
            "warning."
        )
    if package.classifier.calibrator.top_label:
        yield (
            "- Probabilities of all classes: the map calibrates the predicted class's confidence "
            "alone, and `probabilities` is empty."
        )


def _use(package: Package, out: Path) -> Iterator[str]:
    place = shlex.quote(str(out))
    yield "```python"
    yield "import mlflow"
    yield ""
    yield f"model = mlflow.pyfunc.load_model({str(out)!r})"
    yield "model.predict(rows)  # class, confidence, probabilities, abstain"
    yield "```"
    yield ""
    yield "```sh"
    yield f"mlflow models serve -m {place} --env-manager local --port 5001"
    yield "curl http://127.0.0.1:5001/invocations -H 'Content-Type: application/json' \\"
    yield f"  -d @{place}/serving_input_example.json"
    yield "```"
    yield ""
    if len(package.description.inputs.shape) > 1:
        yield "`rows` is an array of images, of the shape and type above."
    elif package.description.inputs.by_position:
        yield "`rows` is an array or a DataFrame of numbers, with columns in the order of training."
    else:
        yield "`rows` is a DataFrame with the columns above, as `pandas.read_csv` gives them."
    yield (
        "`probabilities` lists the classes in the order above. The directory has all the code it "
        "needs; `requirements.txt` names the packages. calsweep itself is not needed."
    )


def _origin(package: Package) -> Iterator[str]:
    about = package.description.about
    environment = about["environment"]
    versions = {k: v for k, v in environment.items() if k not in ("git", "machine") and v}
    yield from _table(
        {
            "sweep": f"`{_text(about['sweep'])}`",
            "trial": f"`{about['key']}`",
            "git revision": f"`{environment.get('git') or 'none recorded'}`",
            "trained with": _settings(versions),
            "exported": about["exported"],
        }
    )


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in rows.items())


def _settings(values: Mapping[str, Any]) -> str:
    shown = (f"{_text(name)} = {_value(value)}" for name, value in values.items())
    return ", ".join(shown) or "no settings"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _text(value)


def _interval(value: float, interval: Iterable[float] | None) -> str:
    if math.isnan(value):
        return "–"
    ends = [float(end) for end in interval or ()]
    if not ends or any(math.isnan(end) for end in ends):
        return f"{value:.4f}"
    return f"{value:.4f} [{ends[0]:.4f}, {ends[1]:.4f}]"


def _text(value: object) -> str:
    """A name in a line of a table: whatever would end the cell or the line is taken out."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("`", "'")
