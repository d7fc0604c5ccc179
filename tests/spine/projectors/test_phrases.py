"""How numbers read: the noun follows its number."""

import pytest

from spine.projectors.phrases import counted

COUNTED = {
    "1 step": (1, "step"),
    "0 steps": (0, "step"),
    "4,717 tokens": (4717, "token"),
    "2 retries": (2, "retry"),
    "1 retry": (1, "retry"),
    "3 plays": (3, "play"),
    "2 processes": (2, "process"),
    "1 process": (1, "process"),
    "2 patches": (2, "patch"),
    "2 tool calls": (2, "tool call"),
}


@pytest.mark.parametrize("text", COUNTED)
def test_a_noun_follows_its_number(text: str) -> None:
    number, noun = COUNTED[text]
    assert counted(number, noun) == text
