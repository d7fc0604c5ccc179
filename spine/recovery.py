"""What to do with a call that had started when its process ended (floor 7): a pure table over effects.

Never silently run again, never dropped: the decision is an event. A request without an answer needs no table: it gets
one more attempt. A call that had not started simply runs.
"""

from typing import Literal

from spine.tools import Effect

Resolution = Literal["rerun", "reconcile", "interrupt"]

RULES: dict[Effect, Resolution] = {
    "read_only": "rerun",
    "idempotent": "rerun",
    "reconcilable": "reconcile",
    "irreversible": "interrupt",
}


def resolve(effect: Effect, *, can_reconcile: bool) -> Resolution:
    """How a started call without an outcome is resolved.

    Returns `rerun` (with the same idempotency key), `reconcile` (the tool's own check is asked) or `interrupt` (the
    model is told that effects are possible). A reconcilable tool without a check is treated as irreversible.
    """
    rule = RULES[effect]
    return "interrupt" if rule == "reconcile" and not can_reconcile else rule
