"""A LiteLLM proxy for the length of a `with` block: a real server that answers over all three protocols.

The program is another environment's: `SPINE_LITELLM` names it, and `make live-proxy` installs it. It listens on
loopback, and so does every model that it knows.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from scenarios.live.host import stop_process

__all__ = ["MOCKED", "VARIABLE", "missing_proxy", "served_proxy"]

VARIABLE: Final = "SPINE_LITELLM"
MOCKED: Final = "This is a mocked answer."
START_S: Final = 120.0
_NOBODY: Final = "http://127.0.0.1:9"
"""Where a mocked model would be: a port that nothing listens on."""


def missing_proxy() -> str | None:
    """Why there is no proxy; None when there is one."""
    program = os.environ.get(VARIABLE)
    if program is None:
        return f"{VARIABLE} does not name a litellm program; make live-proxy installs one"
    return None if Path(program).is_file() else f"{VARIABLE}={program}: there is no such file"


@contextmanager
def served_proxy(model_address: str) -> Iterator[str]:
    """The address of a proxy that knows `mock`, `mock-tools`, and as `real` the model at `model_address`.

    Raises `RuntimeError` with its last words when it does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        config, words = Path(folder) / "config.yaml", Path(folder) / "log"
        config.write_text(json.dumps(_config(model_address)), "utf-8")  # JSON is YAML
        port = _free_port()
        with words.open("wb") as log:
            command = [os.environ[VARIABLE], "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
            proxy = subprocess.Popen(
                command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            address = f"http://127.0.0.1:{port}"
            if not _answers(f"{address}/health/liveliness", proxy):
                raise RuntimeError(f"the proxy did not start: {words.read_text('utf-8', 'replace')[-2000:]}")
            yield address
        finally:
            proxy.terminate()
            stop_process(proxy)


def _config(model_address: str) -> Mapping[str, Any]:
    mock = {"model": "openai/mock", "api_key": "none", "api_base": _NOBODY, "mock_response": MOCKED}
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"word": "spine"}'}}
    calling = {**mock, "model": "openai/mock-tools", "mock_tool_calls": [call]}
    real = {"model": "openai/smollm2", "api_key": "none", "api_base": f"{model_address}/v1"}
    models = {"mock": mock, "mock-tools": calling, "real": real}
    return {
        "model_list": [{"model_name": name, "litellm_params": params} for name, params in models.items()],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }


def _environment() -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str, process: "subprocess.Popen[bytes]") -> bool:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(url, timeout=5):
                return True
        except (URLError, OSError):
            time.sleep(0.2)
    return False
