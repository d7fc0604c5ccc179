"""What to do with a call that had started when its process ended (floor 7): a pure table over effects.

Never silently run again, never dropped: the decision is an event. A request without an answer needs no table: it gets
one more attempt. A call that had not started simply runs.
"""

from typing import Literal

from spine.tools import AfterCrash, Effect

Resolution = Literal["rerun", "reconcile", "interrupt", "ask"]

RULES: dict[Effect, Resolution] = {
    "read_only": "rerun",
    "idempotent": "rerun",
    "reconcilable": "reconcile",
    "irreversible": "interrupt",
}


UNSURE: dict[AfterCrash, Resolution] = {"tell": "interrupt", "ask": "ask"}
"""Where a call may have acted and must not simply run again."""


def resolve(effect: Effect, *, can_reconcile: bool, after_crash: AfterCrash = "tell") -> Resolution:
    """How a started call without an outcome is resolved.

    Returns `rerun` (with the same idempotency key), `reconcile` (the tool's own check is asked), `interrupt` (the
    model is told that effects are possible) or `ask` (a person decides whether it runs again). A reconcilable tool
    without a check, or whose check cannot tell, is treated as irreversible.
    """
    rule = RULES[effect]
    if rule == "interrupt" or (rule == "reconcile" and not can_reconcile):
        return UNSURE[after_crash]
    return rule
