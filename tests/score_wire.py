"""Decode a file of captured answers, one JSON result per line: `python tests/score_wire.py FILE.jsonl[.gz]`."""

import gzip
import json
import pathlib
import sys

from spine.wire import decode_captured
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PROTOCOLS = {protocol.name: protocol for protocol in (AnthropicMessages(), OpenAIChat(), OpenAIResponses())}


def main(path: str) -> None:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            result = decode_captured(PROTOCOLS[record["protocol"]], record)
            sys.stdout.write(json.dumps({"id": record["id"], **result}) + "\n")


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1])))
