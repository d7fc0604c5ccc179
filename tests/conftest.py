"""Shared by all tests: async tests run on asyncio and on trio; one PostgreSQL server serves those that need one."""

from collections.abc import Iterator

import pytest
from postgres_server import Missing, postgres_server


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that an async test runs on."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server that runs for the tests; they are skipped where none can be started."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    try:
        with postgres_server() as url:
            yield url
    except Missing as missing:
        pytest.skip(str(missing))
