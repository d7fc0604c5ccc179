"""A session as one page (floor 13): for people who must answer for it; nothing is loaded, run or linked to.

Transcript, figures, approvals, every request with what was new and whose it was, versions, and the verification with
its head. All foreign text becomes text nodes; the page's policy forbids every request and every script.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from typing import Final

from spine.events import ApprovalDecided, ApprovalRequested
from spine.projectors.html import html_main, html_page
from spine.projectors.phrases import clock, counted, duration, listed, money, with_reason
from spine.projectors.visible import html_text, one_line
from spine.proof.charts import STYLE as CHART_STYLE
from spine.proof.charts import Series, bars
from spine.proof.course import Course, Step
from spine.proof.explain_step import facts_of, step_text
from spine.proof.prefix import KeptPrefix, kept_prefixes
from spine.proof.request_text import diff_text, patches_text
from spine.proof.request_view import RequestView, patch_views
from spine.proof.verify import Verification, head_note
from spine.proof.verify import report as verification_text
from spine.stored import StoredLog
from spine.values import short

__all__ = ["report_html"]

_STYLE: Final = """
body{margin:0;color-scheme:light dark;color:CanvasText;background:Canvas;font:16px/1.5 system-ui,sans-serif}
.report{max-width:60rem;margin:0 auto;padding:1rem}
.report>h1{font-size:1.5rem;overflow-wrap:anywhere}
.report>section>h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid #8a8a8a}
.report nav a{margin-right:1rem}
.report table{border-collapse:collapse;display:block;overflow-x:auto;font-size:.85rem}
.report th,.report td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8a8a8a55;vertical-align:top}
.report td.number{text-align:right;font-variant-numeric:tabular-nums}
.report pre.fact{font:12px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;
max-height:40rem;overflow:auto;margin:.3rem 0 .8rem}
.report .ok{color:#2e7d32;font-weight:600}.report .broken{color:#b3261e;font-weight:600}
.report .unproven{color:#8a5a00;font-weight:600}
@media (prefers-color-scheme:dark){.report .ok{color:#7fd18a}.report .broken{color:#ff8f85}
.report .unproven{color:#f0b849}}
@media print{.report pre.fact{max-height:none}.report details>*{display:block}}
"""


def report_html(
    reader: StoredLog, course: Course, verified: Verification, *, zone: tzinfo = UTC, source: str | None = None
) -> str:
    """The page of a session. Times are in `zone`; `source` names where the log was read."""
    kept = {each.step: each for each in kept_prefixes(reader, course.steps.values(), lambda route: None)}
    parts: Sequence[tuple[str, str, Iterable[str]]] = (
        ("verification", "Verification", _verification(verified)),
        ("figures", "Figures", _figures(course)),
        ("approvals", "Approvals", _approvals(course, zone)),
        ("versions", "Versions", _versions(course)),
        ("transcript", "Transcript", [html_main(course.transcript, zone, source)]),
        ("requests", "Requests", _requests(reader, course, kept)),
    )
    links = "".join(f'<a href="#{id}">{title}</a>' for id, title, _ in parts)
    body = "".join(f'<section id="{id}"><h2>{title}</h2>\n{"".join(piece)}</section>\n' for id, title, piece in parts)
    head = f"<h1>{html_text(course.session)}</h1>\n<p>{html_text(_headline(course))}</p>\n<nav>{links}</nav>\n"
    return html_page(f"{course.session}: report", f'<div class="report">\n{head}{body}</div>\n', _STYLE + CHART_STYLE)


def _headline(course: Course) -> str:
    title = [course.transcript.title] if course.transcript.title else []
    routes = listed(course.transcript.routes) or "no model asked"
    return " · ".join([*title, f"agent {course.agent}", routes, str(course.usage.total)])


def _verification(verified: Verification) -> Iterator[str]:
    words = {"ok": "It holds.", "broken": "It does not hold.", "unproven": "Not everything can be judged here."}
    yield f'<p class="{verified.verdict}">{words[verified.verdict]}</p>\n{_pre(verification_text(verified))}'
    seq, hash = verified.head
    if verified.verdict != "broken":
        yield _pre(head_note(verified))
    yield _pre(f"{seq}:{hash.hex()}")


# ---------------------------------------------------------------------------------------------------------- figures


def _figures(course: Course) -> Iterator[str]:
    steps = [step for step in course.steps.values() if step.request is not None]
    labels = [step.id for step in steps]
    yield _table(
        ("step", "model", "attempts", "tokens in", "from cache", "out", "time", "cost"),
        [_figures_row(step) for step in steps],
    )
    usages = [step.figures.usage for step in steps]
    fresh = [None if u.input_tokens is None else u.input_tokens - (u.cache_read_tokens or 0) for u in usages]
    yield bars(
        "Tokens",
        labels,
        [
            Series("in, not from cache", tuple(fresh)),
            Series("in, from cache", tuple(u.cache_read_tokens for u in usages)),
            Series("out", tuple(u.output_tokens for u in usages)),
        ],
        lambda value: f"{value:,.0f}",
    )
    costs = [step.figures.cost for step in steps]
    currency = {cost.currency for cost in costs if cost is not None}
    if len(currency) == 1:
        values = tuple(None if cost is None else cost.micros / 1_000_000 for cost in costs)
        yield bars("Cost", labels, [Series("cost", values)], lambda value: f"{value:.6f} {min(currency)}")
    yield bars("Time to the whole answer", labels, [Series("time", tuple(map(_latency_s, steps)))], duration)


def _figures_row(step: Step) -> tuple[str, ...]:
    usage, latency = step.figures.usage, _latency_s(step)
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens)
    return (
        step.id,
        step.entry.route or "unknown",
        str(step.figures.attempts),
        *("unknown" if count is None else f"{count:,}" for count in counts),
        "unknown" if latency is None else duration(latency),
        "unknown" if step.figures.cost is None else money(step.figures.cost),
    )


def _latency_s(step: Step) -> float | None:
    if step.request is None or step.answered_at is None:
        return None
    return max(0.0, (step.answered_at - step.request.event.at) / 1_000_000)


# ------------------------------------------------------------------------------------------- approvals and versions


def _approvals(course: Course, zone: tzinfo) -> Iterator[str]:
    rows = []
    for step in course.steps.values():
        for id, call in step.calls.items():
            decided = {f.data.id: f for f in call.facts if isinstance(f.data, ApprovalDecided)}
            for fact in call.facts:
                if isinstance(fact.data, ApprovalRequested):
                    answer = decided.get(fact.data.id)
                    said = "waits" if answer is None else with_reason(answer.data.decision, answer.data.reason)
                    by = "" if answer is None else f"{answer.data.by} ({answer.data.channel})"
                    at = "" if answer is None else clock(answer.at, zone)
                    asked = with_reason(fact.data.name, fact.data.reason)
                    rows.append((fact.data.id, id, asked, clock(fact.at, zone), said, by, at, short(fact.data.hash)))
    if not rows:
        yield "<p>No call asked for one.</p>\n"
        return
    yield _table(("approval", "call", "of", "asked at", "decision", "by", "at", "bound to"), rows)


def _versions(course: Course) -> Iterator[str]:
    yield _table(("part", "version"), sorted(course.versions.items()))


# --------------------------------------------------------------------------------------------------------- requests


def _requests(reader: StoredLog, course: Course, kept: dict[str, KeptPrefix]) -> Iterator[str]:
    earlier: RequestView | None = None
    told: RequestView | None = None
    for step in course.steps.values():
        view = step.request
        if view is None:
            continue
        share = kept.get(view.step)
        prefix = "" if share is None else f" · {share.percent} % of the one before kept"
        messages = counted(len(view.request.messages), "message")
        summary = f"{view.step} · {one_line(str(view.request.route))} · {messages}{prefix}"
        texts = [("What was new", diff_text(view, earlier))]
        if view.data.patches:
            texts.append(("What plugins changed", patches_text(view, patch_views(reader, view))))
        if told is None or _whose(told) != _whose(view):
            told = view
            texts.append(("Whose it was", step_text(facts_of(reader, view))))
        else:
            texts.append(("Whose it was", f"as in {told.step}"))
        shown = "".join(f"<h3>{heading}</h3>\n{_pre(text)}" for heading, text in texts)
        yield f"<details><summary>{html_text(summary)}</summary>\n{shown}</details>\n"
        earlier = view


def _whose(view: RequestView) -> object:
    """What an explanation of the step is made from."""
    return view.data.frame, view.data.selection, view.data.patches, view.data.trimmed


# -------------------------------------------------------------------------------------------------------- in general


def _pre(text: str) -> str:
    return f'<pre class="fact"><span></span>{html_text(text)}</pre>\n'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{html_text(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead>\n<tbody>\n{lines}</tbody></table>\n"


def _cell(text: str) -> str:
    kind = ' class="number"' if text[:1].isdecimal() and text.replace(",", "").isdecimal() else ""
    return f"<td{kind}>{html_text(text)}</td>"
