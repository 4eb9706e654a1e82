"""The client that the commands about contexts use: it can ask any question about them, and send what is published."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from tools.asking import TRIES
from tools.client import Client
from tools.questions import Question
from tools.reaching import BROKEN, explained, refused

T = TypeVar("T")

SEND_SECONDS = 600.0
"""For what is sent to be taken: the disk may have to be waited for."""


class ContextClient(Client):
    """A Client for people who keep contexts; programs of agents only list and read (Client.list_context)."""

    def ask(self, question: Question[T]) -> T:
        """The answer. Raises ControlError."""
        return self._send(question)

    def send(self, path: str, media_type: str, pieces: Callable[[], Iterator[bytes]]) -> None:
        """Send a body in pieces; from the start again where a worker ends meanwhile. Raises ControlError."""
        with explained(self.socket):
            for _ in range(TRIES - 1):
                with suppress(*BROKEN):
                    self._send_once(path, media_type, pieces())
                    return
            self._send_once(path, media_type, pieces())

    def _send_once(self, path: str, media_type: str, pieces: Iterator[bytes]) -> None:
        response = self._http.post(path, content=pieces, headers={"content-type": media_type}, timeout=SEND_SECONDS)
        if not response.is_success:
            raise refused(response)
