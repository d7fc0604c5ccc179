"""A turn draws itself in a notebook: small, and nothing foreign acts."""

from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.turn import Turn
from spine.values import TurnId


def test_a_turn_draws_its_text_and_its_end_escaped() -> None:
    """Markup is text, what hides is shown, and what is unknown is said to be."""
    usage = Usage(input_tokens=612, output_tokens=71)
    turn = Turn(id=TurnId("t1"), status="completed", text="<b>12</b>\u202e", usage=usage, steps=1)
    html = turn._repr_html_()
    assert "<pre>&lt;b&gt;12&lt;/b&gt;\\u202e</pre>" in html
    assert "turn t1 completed (1 step, 612 in, 71 out, cost unknown)" in html
    failed = Turn(
        id=TurnId("t2"),
        status="failed",
        text="",
        steps=2,
        error=Failure(category="server_error", message="<down>"),
        cost=Cost(micros=2901, prices="p"),
    )
    assert "turn t2 failed: &lt;down&gt; (2 steps, tokens unknown, cost $0.002901)" in failed._repr_html_()
