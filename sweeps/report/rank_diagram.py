"""Mean ranks over datasets, with what the critical difference cannot tell apart."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from calibration.metrics import METRICS
from sweeps.analysis.statistics import Ranks
from sweeps.report.wording import p_value

_ROW, _TOP, _WIDTH, _BRACKET = 24, 50, 210, 10


def rank_diagram(metric: str, ranks: Ranks) -> str:
    """A critical-difference diagram (Demšar 2006), a line for each method, the best on top.

    A point is a method's mean rank, the bar at the top the critical difference (Nemenyi, 5 %);
    brackets on the right join methods that are not told apart.
    """
    methods = [str(name) for name in ranks.average.index]
    groups = [group for group in ranks.groups if len(group) > 1]
    scale = _WIDTH / max(1, len(methods) - 1)
    height = _TOP + _ROW * len(methods) + 6
    # Names first: on a phone the rest scrolls, and they stay in sight.
    left = 18 + 7 * max(len(name) for name in methods)
    total = left + _WIDTH + 14 + _BRACKET * len(groups)

    def x(rank: float) -> float:
        return round(left + (rank - 1) * scale, 1)

    parts = [_axis(len(methods), x), _difference(ranks.critical_difference, x, left + _WIDTH)]
    for place, (name, rank) in enumerate(zip(methods, ranks.average, strict=True)):
        y = _TOP + _ROW * place + _ROW // 2
        parts.append(f'<path class="g" d="M{left} {y}H{left + _WIDTH}"/>')
        parts.append(f'<circle cx="{x(rank):g}" cy="{y}" r="5"/>')
        side = -1 if x(rank) > left + 60 else 1
        anchor = "end" if side < 0 else "start"
        parts.append(
            f'<text class="r" x="{x(rank) + 9 * side:g}" y="{y + 4}" text-anchor="{anchor}">'
            f"{rank:.2f}</text>"
        )
        parts.append(f'<text x="0" y="{y + 4}">{escape(name)}</text>')
    for number, group in enumerate(groups):
        places = [methods.index(name) for name in group]
        at = left + _WIDTH + 12 + _BRACKET * number
        first, last = (_TOP + _ROW * place + _ROW // 2 for place in (min(places), max(places)))
        parts.append(f'<path class="k" d="M{at} {first - 6}V{last + 6}"/>')
    test = p_value(ranks.friedman_p)
    about = f"Mean ranks in {METRICS.title(metric)} over {ranks.datasets} datasets"
    return (
        f'<figure class="ranks"><figcaption><b>{escape(about)}</b> '
        f"<small>Friedman {escape(test)}; the bar is the critical difference "
        f"{ranks.critical_difference:.2f} (Nemenyi, 5 %), brackets join what it does not tell "
        "apart</small></figcaption>"
        f'<div class="scroll" tabindex="0"><svg class="cd" role="img" aria-label="{escape(about)}" '
        f'viewBox="0 0 {total} {height}" width="{total}" height="{height}">{"".join(parts)}</svg>'
        "</div></figure>"
    )


def _axis(methods: int, x: Callable[[float], float]) -> str:
    step = max(1, methods // 8)
    ticks = "".join(
        f'<text class="t" x="{x(rank):g}" y="{_TOP - 4}" text-anchor="middle">{rank}</text>'
        for rank in range(1, methods + 1, step)
    )
    return f'<path class="g" d="M{x(1):g} {_TOP}H{x(methods):g}"/>{ticks}'


def _difference(difference: float, x: Callable[[float], float], end: float) -> str:
    length = min(x(1 + difference), end) - x(1)
    return (
        f'<path class="k" d="M{x(1):g} 19h{length:g}"/>'
        f'<text class="t" x="{x(1):g}" y="11">critical difference</text>'
    )
