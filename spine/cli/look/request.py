"""`request` and `explain` (floor 15): what the model saw in a step, and why a call ran; from the log alone."""

from typing import Any, Final

import click

from spine import late
from spine.cli.ending import OF_REQUEST
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session, up_to_unknown
from spine.cli.screen import LOCAL, out, out_json
from spine.config import load_settings
from spine.errors import UsageError
from spine.proof.explain_call import call_story, story_json, story_text
from spine.proof.explain_step import step_facts, step_json, step_text
from spine.proof.request_text import diff_json, diff_text, patches_json, patches_text, request_text
from spine.proof.request_view import RequestView, find_request, patch_views, request_json
from spine.stored import StoredLog

__all__ = ["COMMANDS"]

_STEP: Final = click.option("--step", metavar="STEP", help="t1s3, say; by default the last step.")


@click.command()
@session_argument
@_STEP
@click.option("--diff", is_flag=True, help="Only what is new against the request before it.")
@click.option("--patches", is_flag=True, help="What each plugin changed.")
@click.option("--wire", metavar="PROTOCOL", help="The JSON body as a protocol writes it.")
@options("store", "json", "until")
def request(
    session: str | None,
    step: str | None,
    diff: bool,
    patches: bool,
    wire: str | None,
    store: str | None,
    as_json: bool,
    until: int | None,
) -> int:
    """Print what the model saw in a step, rebuilt from the log; exit status 1 when it is not what was sent.

    3 when that cannot be told any more, because it rests on erased data.
    """
    if diff + patches + (wire is not None) > 1:
        raise UsageError("of --diff, --patches and --wire only one can be asked at a time", hint="spine request --help")
    with reading_session(store, session, check=True) as reader:
        (view, earlier), status = up_to_unknown(lambda until: find_request(reader, step, until), until)
        if wire is not None:
            late.load("spine.cli.look.wire_view").print_body(load_settings(), wire, view)
        elif as_json:
            out_json(_json(reader, view, earlier, diff=diff, patches=patches))
        else:
            out(_text(reader, view, earlier, diff=diff, patches=patches))
        return max(status, OF_REQUEST[view.verdict])


def _text(reader: StoredLog, view: RequestView, earlier: RequestView | None, *, diff: bool, patches: bool) -> str:
    if patches:
        return patches_text(view, patch_views(reader, view))
    return diff_text(view, earlier) if diff else request_text(view)


def _json(
    reader: StoredLog, view: RequestView, earlier: RequestView | None, *, diff: bool, patches: bool
) -> dict[str, Any]:
    if patches:
        return patches_json(view, patch_views(reader, view))
    return diff_json(view, earlier) if diff else request_json(view)


@click.command()
@click.argument("words", nargs=-1, metavar="[SESSION] [CALL]")
@_STEP
@options("store", "json", "until")
def explain(words: tuple[str, ...], step: str | None, store: str | None, as_json: bool, until: int | None) -> int:
    """Tell whose the parts of a step are; or, for a call such as t1s2c1, why it ran."""
    session, call = _session_and_call(words)
    if call is not None and step is not None:
        raise UsageError(f"--step {step} and the call {call} are two questions", hint=f"spine explain {call}")
    with reading_session(store, session, check=True) as reader:
        if call is not None:
            told, status = up_to_unknown(lambda until: call_story(reader, call, until), until)
            out_json(story_json(told)) if as_json else out(story_text(told, zone=LOCAL))
            return max(status, OF_REQUEST[told.view.verdict])
        facts, status = up_to_unknown(lambda until: step_facts(reader, step, until), until)
        out_json(step_json(facts)) if as_json else out(step_text(facts))
        return max(status, OF_REQUEST[facts.verdict])


def _session_and_call(words: tuple[str, ...]) -> tuple[str | None, str | None]:
    rest = list(words)
    call = rest.pop() if rest and _is_call(rest[-1]) else None
    if len(rest) > 1:
        raise UsageError(f'"{rest[1]}" is no call; calls are named as t1s2c1', hint="spine explain --help")
    return (rest[0] if rest else None), call


def _is_call(word: str) -> bool:
    turn, _, rest = word.removeprefix("t").partition("s")
    step, _, number = rest.partition("c")
    return word.startswith("t") and turn.isdecimal() and step.isdecimal() and number.isdecimal()


COMMANDS: Final = {"request": request, "explain": explain}
