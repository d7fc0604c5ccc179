"""A measured figure and its verdict (values only)."""

import attrs

from benchmarks.targets import TARGETS, Target

__all__ = ["Figure", "Missing", "Verdict"]


@attrs.frozen
class Verdict:
    """`word` is one of: aim, ok, MISSED, "" (nothing demanded). `scaled` is what was judged, in the target's unit."""

    word: str
    scaled: float


@attrs.frozen
class Missing:
    """A figure that could not be taken, and why."""

    key: str
    reason: str


@attrs.frozen
class Figure:
    """`value` and `floor` in the unit of the target `key`; `floor` None when nothing was measured beside it."""

    key: str
    value: float
    floor: float | None = None

    @property
    def target(self) -> Target:
        """What is demanded."""
        return TARGETS[self.key]

    @property
    def ratio(self) -> float | None:
        """Times the floor of this run; for rates, the floor's rate over ours. None without a floor."""
        if not self.floor or not self.value:
            return None
        return self.floor / self.value if self.target.higher else self.value / self.floor

    def judge(self, calibration: float) -> Verdict:
        """The verdict on a machine that takes `calibration` times as long as the one the bounds are from."""
        target, scaled = self.target, self.value
        if target.is_time:
            scaled = scaled * calibration if target.higher else scaled / calibration
        if target.must is None:
            return Verdict("", scaled)
        for word, bound in (("aim", target.aim), ("ok", target.must)):
            if bound is not None and _holds(scaled, bound, target.higher):
                return Verdict(word, scaled)
        return Verdict("MISSED", scaled)


def _holds(value: float, bound: float, higher: bool) -> bool:
    return value >= bound if higher else value <= bound
