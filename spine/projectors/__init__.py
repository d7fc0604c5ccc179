"""Projections of a session's log: pure folds, and the views that people and programs read (floor 6)."""

from spine.projectors.describe import describe
from spine.projectors.entries import Call, InputEntry, StepEntry, TurnEntry
from spine.projectors.figures import Figures
from spine.projectors.html import to_html
from spine.projectors.json import to_json
from spine.projectors.log_lines import LogLine, log_lines
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
