"""Whatever a session went through, it is compared, explained and reported; and a session never differs from itself."""

import os
import re

import anyio
import attrs
import pytest
import sessions_made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_report import Page

from spine.proof.course import Course, course_of
from spine.proof.diff import compare, diff_json, diff_text
from spine.proof.explain_call import call_story, story_json, story_text
from spine.proof.explain_step import facts_of, step_json, step_text
from spine.proof.prefix import kept_prefixes, prefix_json, prefix_text
from spine.proof.report import report_html
from spine.proof.request_text import diff_json as request_diff_json
from spine.proof.request_text import diff_text as request_diff_text
from spine.proof.verify import verify
from spine.stored import StoredLog
from spine.values import encode

COUNT = int(os.environ.get("SPINE_SESSIONS", "30"))
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
"""What acts on a screen."""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=COUNT, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(seed=st.integers(0, 2**32))
def test_a_session_is_told_whatever_it_went_through(backend: str, seed: int) -> None:
    log = anyio.run(sessions_made.record, seed, backend=backend).log
    if not log.head[0]:
        return
    course = course_of(log)
    shown = [*compared(log, course), *prefixes(log, course), *explained(log, course), *calls(log, course)]
    assert not [text for text in shown if ACTS.search(text)]
    page = Page(report_html(log, course, verify(log)))
    assert page.open == []
    assert page.tags.count("details") == sum(step.request is not None for step in course.steps.values())


def compared(log: StoredLog, course: Course) -> list[str]:
    """A session differs from itself in nothing, and from its first half in the same places both ways."""
    assert compare(course, attrs.evolve(course, session="other")).is_equal
    half = course_of(log, log.head[0] // 2)
    one, two = compare(course, half), compare(half, course)
    mirrored = {("/".join(reversed(d.place.split("/"))), d.what) for d in two.differences}
    assert {(d.place, d.what) for d in one.differences} == mirrored
    assert encode(diff_json(one))
    return [diff_text(one), diff_text(two)]


def prefixes(log: StoredLog, course: Course) -> list[str]:
    found = list(kept_prefixes(log, course.steps.values(), lambda route: None))
    for each in found:
        assert each.kept_tokens >= 0
        assert each.lost_tokens >= 0
        assert 0 <= each.percent <= 100
        assert (each.percent == 100) is (each.moved is None)
    assert encode(prefix_json(found, 50))
    return [prefix_text(found, 50)]


def explained(log: StoredLog, course: Course) -> list[str]:
    texts = []
    earlier = None
    for step in course.steps.values():
        if step.request is not None:
            facts = facts_of(log, step.request)
            assert facts.verdict == "equal"
            assert facts.is_whole
            assert encode(step_json(facts))
            assert encode(request_diff_json(step.request, earlier))
            texts += [step_text(facts), request_diff_text(step.request, earlier)]
            earlier = step.request
    return texts


def calls(log: StoredLog, course: Course) -> list[str]:
    stories = [call_story(log, id) for step in course.steps.values() for id in step.calls]
    assert all(encode(story_json(story)) for story in stories)
    return [story_text(story) for story in stories]
