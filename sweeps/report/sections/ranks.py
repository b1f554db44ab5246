"""Mean ranks over datasets, with what the critical difference cannot tell apart."""

from __future__ import annotations

from markupsafe import Markup

from calibration.metrics import METRICS
from sweeps.analysis.statistics import Ranks
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, rendered

_ROW, _TOP, _WIDTH, _BRACKET = 24, 50, 210, 10


def rank_diagram(metric: str, ranks: Ranks) -> Markup:
    """A critical-difference diagram (Demšar 2006), a line for each method, the best on top.

    A point is a method's mean rank, the bar at the top the critical difference (Nemenyi, 5 %);
    brackets on the right join methods that are not told apart.
    """
    methods = [str(name) for name in ranks.average.index]
    groups = [group for group in ranks.groups if len(group) > 1]
    scale = _WIDTH / max(1, len(methods) - 1)
    # Names first: on a phone the rest scrolls, and they stay in sight.
    left = 18 + 7 * max(len(name) for name in methods)
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
            (name, rank, x(rank), y[name])
            for name, rank in zip(methods, ranks.average, strict=True)
        ],
        brackets=brackets,
    )


def _ranks(context: ReportContext) -> Markup:
    if not context.analysis.ranks:
        return NOTHING
    drawn = [rank_diagram(metric, ranks) for metric, ranks in context.analysis.ranks.items()]
    return context.room.take(rendered("ranks", drawn=drawn))


section = Section("Across datasets", _ranks, "ranks")
