"""Mean ranks over datasets, with groups within the critical difference."""

from __future__ import annotations

from collections.abc import Container

from markupsafe import Markup

from calibration.metrics import METRICS
from sweeps.analysis.statistics import Ranks
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, rendered
from sweeps.report.wording import convergence_note, dagger

_ROW, _TOP, _WIDTH, _BRACKET = 24, 50, 210, 10


def rank_diagram(metric: str, ranks: Ranks, marked: Container[str] = ()) -> Markup:
    """A critical-difference diagram (Demšar 2006), a line for each method, the best on top.

    A point is a method's mean rank, the bar at the top the critical difference (Nemenyi, 5 %);
    brackets on the right join methods that do not differ. ``marked`` methods carry the mark
    of calibrators that did not converge.
    """
    methods = [str(name) for name in ranks.average.index]
    groups = [group for group in ranks.groups if len(group) > 1]
    scale = _WIDTH / max(1, len(methods) - 1)
    # Names first: on a phone the rest scrolls, and they stay in sight.
    names = {name: name + dagger({"converged": name not in marked}) for name in methods}
    left = 18 + 7 * max(map(len, names.values()))
    right = left + _WIDTH
    y = {name: _TOP + _ROW * place + _ROW // 2 for place, name in enumerate(methods)}

    def x(rank: float) -> float:
        return round(left + (rank - 1) * scale, 1)

    brackets = []
    for number, group in enumerate(groups):
        places = [y[str(name)] for name in group]
        brackets.append((right + 12 + _BRACKET * number, min(places) - 6, max(places) + 6))
    return rendered(
        "rank_diagram",
        title=f"Mean ranks in {METRICS.title(metric)} over {ranks.datasets} datasets",
        ranks=ranks,
        width=right + 14 + _BRACKET * len(groups),
        height=_TOP + _ROW * len(methods) + 6,
        top=_TOP,
        left=left,
        right=right,
        length=min(x(1 + ranks.critical_difference), right) - x(1),
        ends=(x(1), x(len(methods))),
        ticks=[(r, x(r)) for r in range(1, len(methods) + 1, max(1, len(methods) // 8))],
        points=[
            (names[name], rank, x(rank), y[name])
            for name, rank in zip(methods, ranks.average, strict=True)
        ],
        brackets=brackets,
    )


def _ranks(context: ReportContext) -> Markup:
    if not context.analysis.ranks:
        return NOTHING
    table = context.analysis.leaderboard
    chosen = table[table["chosen"]]
    marked = set(chosen.loc[chosen["converged"] < 1, "row"])
    drawn = [rank_diagram(name, ranks, marked) for name, ranks in context.analysis.ranks.items()]
    note = convergence_note(chosen["converged"])
    return context.room.take(rendered("ranks", drawn=drawn, note=note))


section = Section("Across datasets", _ranks, "ranks")
