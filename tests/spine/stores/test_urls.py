"""A store's URL is shown without what may be a password, and otherwise as it was written."""

import pytest

from spine.config import Settings
from spine.stores.urls import without_secrets

CASES = {
    "postgresql://u:canary@h:5/db?schema=x": "postgresql://u@h:5/db?schema=x",
    "postgresql://u:can/ary@h/db": "postgresql://u@h/db",
    "postgresql://u:can@ary@h/db": "postgresql://u@h/db",
    "postgresql://u:can:ary?x#y@h/db": "postgresql://u@h/db",
    "postgresql://u:canary\n@h/db": "postgresql://u@h/db",
    "POSTGRESQL://u:canary@h/db": "POSTGRESQL://u@h/db",
    "postgresql://u@h/db?password=canary": "postgresql://u@h/db",
    "postgresql://u@h/db?Password=canary&schema=x": "postgresql://u@h/db?schema=x",
    "postgresql://u@h/db?schema=x&sslpassword=canary&a=b": "postgresql://u@h/db?schema=x&a=b",
    "other+kind://:canary@h": "other+kind://@h",
}
KEPT = [
    "memory:",
    "sqlite:a/b.db?durability=relaxed",
    "sqlite:/x/a:b@c.db",
    "postgresql:///db",
    "postgresql://u@h:5/db",
    "",
]


@pytest.mark.parametrize("url", CASES)
def test_a_password_is_not_shown(url: str) -> None:
    """Also one that was not written as a URL wants it."""
    assert without_secrets(url) == CASES[url]
    assert without_secrets(CASES[url]) == CASES[url]


@pytest.mark.parametrize("url", KEPT)
def test_a_url_without_one_is_shown_as_it_is(url: str) -> None:
    """Nothing else is taken away."""
    assert without_secrets(url) == url


def test_settings_do_not_show_it_either() -> None:
    """Their repr stands in tracebacks and logs."""
    assert "canary" not in repr(Settings(store="postgresql://u:canary@h/db"))
    assert "postgresql://u@h/db" in repr(Settings(store="postgresql://u:canary@h/db"))
