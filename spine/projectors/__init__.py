"""Projections of a session's log: pure folds, and the views that people and programs read (floor 6).

A name is imported from its home when it is first asked for: a runtime folds, and seldom shows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spine.late import offered as _offered

if TYPE_CHECKING:
    from spine.projectors.descriptions import describe
    from spine.projectors.entries import Call, InputEntry, StepEntry, TurnEntry
    from spine.projectors.figures import Figures
    from spine.projectors.html import to_html
    from spine.projectors.json import to_json
    from spine.projectors.log_view import LogLine, log_lines
    from spine.projectors.markdown import to_markdown
    from spine.projectors.projector import Projector, ViewingProjector, fold, refuse_unknown
    from spine.projectors.text import to_text
    from spine.projectors.transcript import SessionTranscript, Transcript
    from spine.projectors.usage import SessionUsage, UsageReport

__all__ = [
    "Call",
    "Figures",
    "InputEntry",
    "LogLine",
    "Projector",
    "SessionTranscript",
    "SessionUsage",
    "StepEntry",
    "Transcript",
    "TurnEntry",
    "UsageReport",
    "ViewingProjector",
    "describe",
    "fold",
    "log_lines",
    "refuse_unknown",
    "to_html",
    "to_json",
    "to_markdown",
    "to_text",
]

_HOMES: Final[Mapping[str, str]] = {
    "Call": "spine.projectors.entries",
    "Figures": "spine.projectors.figures",
    "InputEntry": "spine.projectors.entries",
    "LogLine": "spine.projectors.log_view",
    "Projector": "spine.projectors.projector",
    "SessionTranscript": "spine.projectors.transcript",
    "SessionUsage": "spine.projectors.usage",
    "StepEntry": "spine.projectors.entries",
    "Transcript": "spine.projectors.transcript",
    "TurnEntry": "spine.projectors.entries",
    "UsageReport": "spine.projectors.usage",
    "ViewingProjector": "spine.projectors.projector",
    "describe": "spine.projectors.descriptions",
    "fold": "spine.projectors.projector",
    "log_lines": "spine.projectors.log_view",
    "refuse_unknown": "spine.projectors.projector",
    "to_html": "spine.projectors.html",
    "to_json": "spine.projectors.json",
    "to_markdown": "spine.projectors.markdown",
    "to_text": "spine.projectors.text",
}


if not TYPE_CHECKING:  # a type checker should see the names above and no others
    __getattr__, __dir__ = _offered(globals(), _HOMES)
