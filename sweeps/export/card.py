"""The model card: what an exported model is, how good it is, and what it is not good for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import Path

from calibration.abstention import Accepted
from calibration.deployment import Description
from calibration.metrics import METRICS, Shown
from calibration.text import visible
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.export.markdown import confidence, interval, percent, settings, table
from sweeps.export.package import Package
from sweeps.report.escaping import markdown_code as code
from sweeps.report.escaping import markdown_text
from sweeps.report.wording import bounds

_FEW_ROWS = 50
_MANY_CLASSES = 30


def card(package: Package, out: Path) -> str:
    """The card as Markdown. Its test figures are reported only; nothing was chosen by them."""
    sections = {
        "": _introduction(package),
        "Data": _data(package),
        "Training": _training(package),
        "Results on test rows": _results(package),
        "Deployment prior": _prior(package),
        "Abstention": _abstention(package),
        "How it was chosen": _choice(package),
        "What it is not good for": _limits(package),
        "How to use it": _use(package, out),
        "Where it comes from": _origin(package),
    }
    blocks = []
    for title, lines in sections.items():
        if content := list(lines):
            blocks.append("\n".join([*([f"## {title}", ""] if title else []), *content]))
    return visible("\n\n".join(blocks)) + "\n"


def _introduction(package: Package) -> Iterator[str]:
    about, classes = package.description.about, package.description.class_names
    yield f"# {markdown_text(about['row'])} on {markdown_text(about['dataset'])}"
    yield ""
    network = package.description.network
    trained = f"a {code(network.name)} network trained by " if network else ""
    yield (
        f"A calibrated classifier of {len(classes)} classes: {trained}"
        f"{code(about['method'])}, {_calibrator(package)}, and a threshold on the confidence below "
        "which it abstains. A confidence of 0.8 should be right in 8 of 10 cases."
    )


def _calibrator(package: Package) -> str:
    name = package.chosen.calibrator
    if name == "identity":
        return "without a calibrator"
    return f"its output calibrated by {code(name)}"


def _data(package: Package) -> Iterator[str]:
    about, description, rows = package.description.about, package.description, package.rows
    yield from table(
        {
            "dataset": code(about["dataset"]),
            "fingerprint (SHA-256)": f"`{about['fingerprint']}`",
            "rows": ", ".join(f"{count} {part}" for part, count in rows.items()),
            "inputs": _inputs(package),
            "classes (share of training rows)": _classes(package),
        }
    )
    if description.inputs.optional:
        yield ""
        optional = ", ".join(code(name) for name in description.inputs.optional)
        yield f"Columns with missing values in training, which may be omitted: {optional}."


def _inputs(package: Package) -> str:
    inputs = package.description.inputs
    if inputs.by_position:
        return f"{inputs.dtype} of shape (N, {', '.join(map(str, inputs.shape))})"
    shown = [f"{code(c.name)} ({c.kind})" for c in inputs.columns[:_MANY_CLASSES]]
    more = len(inputs.columns) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _classes(package: Package) -> str:
    shares = package.train_share.tolist()
    names = package.description.class_names
    pairs = list(zip(names, shares, strict=True))[:_MANY_CLASSES]
    more = len(names) - len(pairs)
    shown = ", ".join(f"{code(name)} ({percent(share)})" for name, share in pairs)
    return shown + (f" and {more} more" if more else "")


def _training(package: Package) -> Iterator[str]:
    description, about = package.description, package.description.about
    yield from table(
        {
            "method": f"{code(about['method'])}: {settings(about['hyperparameters'])}",
            **_network(description),
            "training": settings(about["training"]),
            "calibrator": f"{code(package.chosen.calibrator)}, fitted on all "
            f"{package.rows['validation']} validation rows{_convergence(package)}",
            "seed": str(about["seed"]),
        }
    )


def _network(description: Description) -> dict[str, str]:
    network = description.network
    return {"network": f"{code(network.name)}: {settings(network.options)}"} if network else {}


def _convergence(package: Package) -> str:
    if package.chosen.evaluation.converged:
        return ""
    return "; **its fit did not converge**, and if it made NLL worse there, it was left out"


def _results(package: Package) -> Iterator[str]:
    found, row = package.chosen.evaluation, package.chosen.row
    count = int(row["seeds"])
    yield f"| | this network | mean over {count} seed{'s' if count > 1 else ''} |"
    yield "|---|---|---|"
    for metric in METRICS.names(Shown.DETAIL):
        name = METRICS.title(metric)
        if metric not in found.test:
            continue
        own = interval(found.test[metric], found.intervals.get(metric))
        yield f"| {name} | {own} | {interval(float(row[metric]), bounds(row, metric))} |"
    mean, high = found.floor or (math.nan, math.nan)
    averages = f"{row['floor']:.4f} (95 % quantile {row['floor_q95']:.4f})"
    yield f"| ECE's noise floor | {mean:.4f} (95 % quantile {high:.4f}) | {averages} |"
    yield ""
    yield (
        f"In brackets: 95 % intervals, by bootstrap over the {package.rows['test']} test rows for "
        f"this network{' and over seeds for the mean' if count > 1 else ''}. The noise floor is "
        "the ECE that these confidences would show by chance if they were perfectly calibrated: "
        "an ECE near it is as good as this many rows can show."
    )


def _prior(package: Package) -> Iterator[str]:
    prior, names = package.description.prior, package.description.class_names
    if prior is None:
        return
    yield (
        "Its probabilities are corrected for class frequencies that differ in deployment: "
        "p′(k) ∝ p(k)·π′(k)/π(k) (Saerens et al. 2002). That is correct if the rows of each "
        "class are distributed as before, and only the classes' frequencies differ."
    )
    yield ""
    yield "| class | share of the validation rows, π | share in deployment, π′ |"
    yield "|---|---|---|"
    shown = list(zip(names, prior.calibrated, prior.deployed, strict=True))
    for name, old, new in shown[:_MANY_CLASSES]:
        yield f"| {code(name)} | {percent(old)} | {percent(new)} |"
    yield ""
    yield (
        "**The results above are those before this correction**, on the original test rows: test "
        "rows with the old frequencies cannot judge it, and no figure was reweighted for the new "
        "ones."
    )


def _chosen(package: Package) -> str:
    """What else was chosen on the rows that chose the threshold."""
    if package.description.about["protocol"].get("choice") is not None:
        return "its row and its calibrator"
    return "its epoch, its settings and its calibrator"


def _abstention(package: Package) -> Iterator[str]:
    wish, threshold = package.wish, package.description.threshold
    if wish.accuracy is None and wish.coverage is None:
        yield "No threshold was requested: it never abstains (`abstain` is always false)."
        return
    yield f"It abstains if the confidence is below **{confidence(threshold)}**, chosen so that"
    yield ""
    if wish.accuracy is not None:
        yield (
            f"- with 95 % confidence at least {percent(wish.accuracy)} of the accepted rows are "
            "right: the lowest threshold that passes exact binomial tests in a fixed sequence from "
            "high confidence down."
        )
        yield (
            "- The guarantee is about rows drawn like the validation rows, on average over all "
            "of them: not about a class or group among them, nor about shifted data. It assumes "
            "that the validation rows are independent of the network; but they also chose "
            f"{_chosen(package)}, so it is slightly too optimistic. And it was found with "
            "cross-fitted calibrators, while the model has the one fitted on all of them. The test "
            "rows below are the independent check."
        )
        if package.description.about["protocol"]["share_validation"]:
            yield (
                "- By this sweep's protocol the training method may have learned on the very same "
                "rows: then the guarantee is even weaker."
            )
    elif wish.coverage is not None:
        yield f"- {_covered(wish.coverage, package.on_validation)}."
    yield ""
    yield "| | rows | accepted | right among the accepted |"
    yield "|---|---|---|---|"
    yield _accepted("validation (chosen on these, cross-fitted)", package.on_validation)
    yield _accepted("test", package.on_test)
    yield ""
    yield "In brackets: 95 % intervals (Wilson)."


def _covered(coverage: float, found: Accepted) -> str:
    # Rounded up to whole rows it is the requested coverage; only ties add more.
    tied = found.kept > math.ceil(round(coverage * found.rows, 6))
    share = percent(found.coverage)
    more = f" ({share if share != percent(coverage) else 'a little more'} because of ties)"
    return (
        f"at least {percent(coverage)}{more if tied else ''} of the validation rows are accepted, "
        "measured with cross-fitted calibrators"
    )


def _accepted(name: str, found: Accepted) -> str:
    coverage = interval(found.coverage, found.coverage_interval)
    accuracy = interval(found.accuracy, found.accuracy_interval)
    return f"| {name} | {found.rows} | {coverage} | {accuracy} |"


def _choice(package: Package) -> Iterator[str]:
    chosen = package.chosen
    name = code(chosen.label)
    if chosen.row_named:
        also = "and is also" if chosen.is_winner else "and is not"
        yield f"By hand: {name} was requested by name {also} what validation data would choose."
    else:
        yield f"On validation data only, which chose {name}."
    if chosen.is_winner:
        count = int(chosen.row["seeds"])
        measured = "every seed" if count == chosen.planned else f"as many seeds as it ({count})"
        yield (
            f"Of all rows on this dataset that were measured on {measured}, it is the simplest "
            "within noise of the lowest cross-fitted validation NLL, averaged over seeds."
        )
    yield from _seed(package)
    if chosen.searched:
        yield "The hyperparameters were searched with another seed, on its validation rows."
    else:
        yield "The hyperparameters were fixed beforehand; none was searched."
    yield "Test data chose nothing."


def _seed(package: Package) -> Iterator[str]:
    chosen = package.chosen
    if chosen.seed_named:
        yield f"Its seed, {chosen.trial.config.seed}, was chosen by hand."
    elif len(chosen.seeds) == 1:
        yield "It is the row's only network."
    else:
        own = chosen.seeds[CHOSEN_BY].map(math.isfinite).any()
        judged = "cross-fitted validation NLL" if own else "validation NLL before its calibrator"
        yield (
            f"Of its networks this is the one with the lowest {judged}. Each "
            "seed has its own validation rows, so that is partly luck: on new rows, expect the "
            "mean over seeds rather than this network's own figures."
        )


def _limits(package: Package) -> Iterator[str]:
    description = package.description
    low, high = package.test_range
    yield (
        "- Other populations and shifted data: its confidences are calibrated for rows drawn like "
        f"those of {code(description.about['dataset'])} and can be far off elsewhere, also "
        "if only the classes' frequencies differ."
    )
    yield (
        "- Classes that it has not seen: it knows the "
        f"{len(description.class_names)} above and assigns everything to one of them, possibly "
        "with high confidence."
    )
    yield (
        "- Groups within the data: it is calibrated on average; nothing was measured for subgroups."
    )
    counts = (package.train_share * package.rows["training"]).round().int().tolist()
    rare = [n for n, c in zip(description.class_names, counts, strict=True) if c < _FEW_ROWS]
    if rare:
        shown = ", ".join(code(name) for name in rare[:_MANY_CLASSES])
        yield f"- Rare classes: fewer than {_FEW_ROWS} training rows of {shown}."
    yield (
        f"- Confidences that were not seen: those of the {package.rows['test']} test rows lie "
        f"between {confidence(low)} and {confidence(high)}; nothing is known about rows outside."
    )
    if any(column.kind == "categorical" for column in description.inputs.columns):
        yield (
            "- Categories that it has not seen are treated as none of the known ones, without a "
            "warning."
        )
    if package.classifier.calibrator.top_label:
        yield (
            "- Probabilities of all classes: the calibrator gives only the confidence of the "
            "predicted class, and `probabilities` is empty."
        )


def _use(package: Package, out: Path) -> Iterator[str]:
    place = visible(shlex.quote(str(out)), keep="")  # a line break would end the block
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
        "`probabilities` lists the classes in the order above. The directory contains all the "
        "code; `requirements.txt` lists the packages. calsweep itself is not needed."
    )


def _origin(package: Package) -> Iterator[str]:
    about = package.description.about
    environment = about["environment"]
    versions = {k: v for k, v in environment.items() if k not in ("git", "machine") and v}
    yield from table(
        {
            "sweep": code(about["sweep"]),
            "trial": f"`{about['key']}`",
            "git revision": f"`{environment.get('git') or 'none recorded'}`",
            "trained with": settings(versions),
            "exported": about["exported"],
        }
    )
