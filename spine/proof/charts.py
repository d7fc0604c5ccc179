"""Bars as inline SVG (floor 13): figures of steps side by side, without scripts and without foreign attributes."""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from spine.projectors.visible import html_text

__all__ = ["STYLE", "Series", "bars"]

HEIGHT: Final = 120
BAR: Final = 14
STYLE: Final = """
.chart{margin:.75rem 0;overflow-x:auto}
.chart svg{height:150px;display:block}
.chart text{font:10px system-ui,sans-serif;fill:CanvasText}
.chart .axis{stroke:CanvasText;stroke-width:.5}
.chart .s0{fill:#4a7bd0}.chart .s1{fill:#9dbbe8}.chart .s2{fill:#4f9a5b}.chart .unknown{fill:#8a8a8a;opacity:.4}
.legend span{margin-right:1rem;font-size:.8rem}
.legend b{display:inline-block;width:.7rem;height:.7rem;margin-right:.3rem}
.legend .s0{background:#4a7bd0}.legend .s1{background:#9dbbe8}.legend .s2{background:#4f9a5b}
"""


@attrs.frozen
class Series:
    """One kind of figure: a value for each step, None where it is not known. Series stand on top of each other."""

    name: str
    values: tuple[float | None, ...]


def bars(title: str, labels: Sequence[str], series: Sequence[Series], say: Callable[[float], str]) -> str:
    """A chart with a bar for each label; empty when nothing is known. `say` writes a value with its unit."""
    totals = [sum(each.values[i] or 0 for each in series) for i in range(len(labels))]
    highest = max(totals, default=0)
    if highest <= 0:
        return ""
    width = max(len(labels) * (BAR + 2), 4 * BAR)
    drawn = "".join(_bar(i, label, series, highest, say) for i, label in enumerate(labels))
    legend = "".join(f'<span><b class="s{n}"></b>{html_text(each.name)}</span>' for n, each in enumerate(series))
    caption = html_text(f"{title}, at most {say(highest)} in a step")
    return (
        f'<figure class="chart"><figcaption>{caption}</figcaption>\n'
        f'<svg viewBox="0 0 {width} {HEIGHT + 16}" role="img">\n{drawn}'
        f'<line class="axis" x1="0" y1="{HEIGHT}" x2="{width}" y2="{HEIGHT}"></line>\n'
        f'<text x="0" y="{HEIGHT + 12}">{html_text(labels[0])}</text>\n'
        f'<text x="{width}" y="{HEIGHT + 12}" text-anchor="end">{html_text(labels[-1])}</text>\n'
        f'</svg>\n<p class="legend">{legend}</p></figure>\n'
    )


def _bar(i: int, label: str, series: Sequence[Series], highest: float, say: Callable[[float], str]) -> str:
    known = [(each.name, each.values[i]) for each in series]
    says = ", ".join(f"{name} {'unknown' if value is None else say(value)}" for name, value in known)
    rects, top = [], float(HEIGHT)
    for number, (_, value) in enumerate(known):
        height = HEIGHT * (value or 0) / highest
        top -= height
        rects.append(_rect(f"s{number}", i, top, height))
    if all(value is None for _, value in known):
        rects = [_rect("unknown", i, HEIGHT - 4, 4)]
    return f"<g><title>{html_text(f'{label}: {says}')}</title>{''.join(rects)}</g>\n"


def _rect(kind: str, i: int, top: float, height: float) -> str:
    return f'<rect class="{kind}" x="{i * (BAR + 2)}" y="{top:.1f}" width="{BAR}" height="{height:.1f}"></rect>'
