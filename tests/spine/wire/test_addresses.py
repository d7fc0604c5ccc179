"""Addresses a key may be sent to."""

import pytest

from spine.errors import ConfigInvalid
from spine.wire.addresses import check_address

GOOD = [
    "https://api.example.com/v1",
    "https://api.example.com/v1/",
    "https://10.0.0.7:8443/v1",
    "http://localhost:8080/v1",
    "http://127.0.0.1/v1",
    "http://127.9.9.9/v1",
    "http://[::1]:8080/v1",
    "http://[::ffff:127.0.0.1]/v1",
    "http://models.localhost/v1",
]
BAD = [
    "http://api.example.com/v1",
    "http://192.168.0.10/v1",
    "http://localhost.example.com/v1",
    "http://127.0.0.1.example.com/v1",
    "http://0.0.0.0/v1",
    "https://169.254.169.254/latest",
    "https://[fe80::1]/v1",
    "https://[::ffff:169.254.169.254]/",
    "https://user@example.com/v1",
    "https://user:hunter2@example.com/v1",
    "https://@example.com/v1",
    "https://example.com/v1?key=1",
    "https://example.com/v1#x",
    "https://exa mple.com/v1",
    "https://example.com/v1\r\nx: y",
    "https://example.com:port/v1",
    "https://[::1/v1",
    "ftp://example.com/v1",
    "file:///etc/passwd",
    "//example.com/v1",
    "example.com/v1",
    "https://",
    "",
]


@pytest.mark.parametrize("url", GOOD)
def test_https_and_this_machine_are_taken(url: str) -> None:
    assert check_address(url, provider="lab") == url.rstrip("/")


@pytest.mark.parametrize("url", BAD)
def test_everything_else_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        check_address(url, provider="lab")
    assert 'provider "lab"' in caught.value.message
    assert "hunter2" not in caught.value.message


def test_plain_http_may_be_allowed_but_nothing_else() -> None:
    assert check_address("http://10.0.0.7/v1", provider="lab", allow_http=True) == "http://10.0.0.7/v1"
    with pytest.raises(ConfigInvalid, match="link-local"):
        check_address("http://169.254.169.254/", provider="lab", allow_http=True)
