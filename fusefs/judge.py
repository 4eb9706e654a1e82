"""The judge: a process that searches texts for the worker, so that no search keeps a request to the mount waiting.

Python's threads run one at a time: a worker that searches 4 MiB in a thread serves everybody slower meanwhile. What the
process is asked comes as a message on a socket, with a copy of the file in memory; it opens no file of a turn. It ends
when the worker does, and after a while without work.
"""

import json
import os
import socket
import sys
from dataclasses import asdict
from typing import Any

from fusefs import holders
from fusefs.judging import judge_whole

IDLE_S = 60.0
LONGEST_MESSAGE = 1 << 16
_NICENESS = 5


def main() -> None:
    """Answer on the socket that is standard input."""
    os.nice(_NICENESS)
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as asked:
        asked.settimeout(IDLE_S)
        try:
            while True:
                message, descriptors, _, _ = socket.recv_fds(asked, LONGEST_MESSAGE, 1)
                if not message:
                    return
                asked.send(json.dumps(_answer(json.loads(message), descriptors)).encode())
        except (TimeoutError, ConnectionError):
            return


def _answer(question: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    name = bytes.fromhex(question.pop("name"))
    if not descriptors:
        return {"written": holders.may_be_written(name=name, **question)}
    with open(descriptors[0], "rb") as content:
        content.seek(0)
        return asdict(judge_whole(name, tuple(question["types"]), question["size"], content.read()))


if __name__ == "__main__":
    main()
