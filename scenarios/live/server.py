"""The real model, served in a process of its own for as long as its stdin stays open.

Prints its address as one line on stdout. Whoever started it ends it by closing the pipe, also by dying.
"""

import sys
from pathlib import Path
from typing import Final

import xllamacpp

from scenarios.live.weights import weights

__all__ = ["MODEL", "serve"]

MODEL: Final = "smollm2"
CONTEXT_TOKENS: Final = 4096
ANSWER_TOKENS: Final = 256
"""The longest answer: a small model that does not find its end must not hold everybody up."""


def serve(model: Path) -> xllamacpp.Server:
    """A server of the model on a free loopback port; it answers as soon as this returns."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = CONTEXT_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more of them wait for each other by spinning
    params.n_predict = ANSWER_TOKENS
    params.sampling.temp = 0.0
    params.ui = False
    params.offline = True
    params.verbosity = -1
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until stdin ends."""
    server = serve(weights())
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
