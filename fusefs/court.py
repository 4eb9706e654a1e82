"""The worker's end of the judge (fusefs.judge): it is started when there is something to be judged, and asked."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from fusefs import holders
from fusefs.judge import LONGEST_MESSAGE
from fusefs.judging import Judged, judge, judge_by_name, judge_whole
from policy import outbox
from policy.outbox import Outcome, Rule, Verdict


class Court:
    """Has files judged, texts by the judge, one at a time. Every method is for worker threads.

    Where no process can be started, the thread judges by itself. `daemon` is the worker's pid.
    """

    def __init__(self, daemon: int) -> None:
        self._daemon = daemon
        self._asking = threading.Lock()
        self._judge: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def judge(self, name: bytes, types: tuple[str, ...], descriptor: int, *, digest: bool = False) -> Judged:
        """What the rules say of an open file under this name; with the SHA-256 of what may leave, if that is asked for.

        Raises OSError.
        """
        st = os.fstat(descriptor)
        kind = outbox.type_of(name, types)
        if judge_by_name(name, types, st.st_nlink, st.st_size) is None and kind is not None and kind.needs_all:
            content = _read(descriptor, 0, _before_hole(descriptor, st.st_size))
            # A hole is read as NUL bytes; how many more of them there are makes no difference.
            whole = content if len(content) == st.st_size else content + b"\0"
            verdict = self._judge_text(name, types, st.st_size, whole)
        else:
            verdict = judge(name, types, st, lambda offset, size: _read(descriptor, offset, size))
            content = _read(descriptor, 0, st.st_size) if digest and verdict.verdict is Outcome.KEPT else b""
        if verdict.verdict is Outcome.REFUSED or not digest:
            return Judged(verdict)
        return Judged(verdict, hashlib.sha256(content).hexdigest())

    def _judge_text(self, name: bytes, types: tuple[str, ...], size: int, whole: bytes) -> Verdict:
        memory = os.memfd_create("fusefs-judged")
        try:
            _write(memory, whole)
            answer = self._ask({"name": name.hex(), "types": types, "size": size}, [memory])
        finally:
            os.close(memory)
        return judge_whole(name, types, size, whole) if answer is None else _verdict(answer)

    def may_be_written(self, nodeid: int, name: bytes, *, mapped: bool) -> bool:
        """Whether a process has a file open, or mapped, for writing (fusefs.holders)."""
        question = {"nodeid": nodeid, "mapped": mapped, "daemon": self._daemon}
        answer = self._ask({"name": name.hex(), **question}, [])
        if answer is None:
            return holders.may_be_written(nodeid, name, mapped=mapped, daemon=self._daemon)
        return bool(answer["written"])

    def _ask(self, question: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any] | None:
        """The judge's answer, or None where there is no judge to be had."""
        message = json.dumps(question).encode()
        with self._asking:
            for _ in range(2):  # one that had nothing to do may have gone
                try:
                    asked = self._socket or self._start()
                    socket.send_fds(asked, [message], descriptors)
                    answer = asked.recv(LONGEST_MESSAGE)
                except OSError:
                    answer = b""
                if answer:
                    told: dict[str, Any] = json.loads(answer)
                    return told
                self._end()
        return None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-m", "fusefs.judge"]
            self._judge = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd="/")
        self._socket = ours
        return ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._judge is not None:
            self._judge.kill()
            self._judge.wait()
            self._judge = None

    def close(self) -> None:
        """End the judge. A question that is under way is answered first."""
        with self._asking:
            self._end()


def _verdict(told: dict[str, Any]) -> Verdict:
    rule = None if told["rule"] is None else Rule(told["rule"])
    return Verdict(**{**told, "verdict": Outcome(told["verdict"]), "rule": rule, "warnings": tuple(told["warnings"])})


def _before_hole(descriptor: int, size: int) -> int:
    return min(size, os.lseek(descriptor, 0, os.SEEK_HOLE)) if size else 0


def _read(descriptor: int, offset: int, size: int) -> bytes:
    """All of it, fewer bytes only at the end."""
    parts, got = [], 0
    while got < size and (part := os.pread(descriptor, size - got, offset + got)):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
