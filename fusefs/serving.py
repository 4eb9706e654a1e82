"""The request loop: reads what the kernel asks, has it answered, writes the reply.

One task reads the device and answers what can be answered at once. What has to wait, for a disk or for its turn, gets
a task of its own.

FUSE's own rules (fs/fuse/dev.c): one read(2) is one request, one write(2) one reply. ENODEV says that the mount is
gone; ENOENT that a request was taken back meanwhile, by the end of whoever made it.
"""

import errno
import logging
import os
import struct
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

import trio

from fusefs.counting import StillCounting
from fusefs.handlers import Handler, Later, Reply
from fusefs.nodes import Lacking
from fusefs.operations import Operations
from fusefs.protocol import IN_HEADER, OPENDIR, REQUESTS, UNANSWERED, Header
from fusefs.recorder import first_cell
from fusefs.requests import DeviceWaiter
from fusefs.session import MAX_WRITE, Session
from policy.refusals import Refusal

log = logging.getLogger(__name__)

MOST_WAITING = 4096
"""Requests that may wait for a disk, or for others that do, at once; more wait in the kernel, of whichever turn.

Each takes a task while it waits, and the memory that its own request fills.
"""
_OUT_HEADER = struct.Struct("<IiQ")  # length, minus errno, unique
_HEADER_BYTES: Final = _OUT_HEADER.size
_SMALL = 512
"""So many bytes are rather copied than written from two places."""
_OPENS = frozenset({"open", "create"})
_OF_FILES = frozenset({"read", "write", "flush", "release", "fsync"})


class Kind:
    """A kind of request, put together from what the kernel sends and what answers it."""

    __slots__ = ("arguments", "first", "handler", "is_answered", "method", "opens")

    def __init__(self, opcode: int, operations: Operations) -> None:
        name, self.arguments = REQUESTS[opcode]
        self.handler: Handler = getattr(type(operations), name)
        self.method: Callable[..., Any] = partial(self.handler.method, operations)
        self.first = first_cell(name)
        self.is_answered = opcode not in UNANSWERED
        self.opens = name in _OPENS


class Serving:
    """Serves a session until that ends, or it is stopped. `told` is called when the kernel knows what was opened."""

    def __init__(
        self, session: Session, operations: Operations, waiter: DeviceWaiter, told: Callable[[], None]
    ) -> None:
        self._device = session.device
        self._operations = operations
        self._waiter = waiter
        self._told = told
        self._kinds = {opcode: Kind(opcode, operations) for opcode in REQUESTS}
        if session.lists_unopened:
            del self._kinds[OPENDIR]  # the kernel learns that it need not be asked
        self._room = trio.Semaphore(MOST_WAITING)
        self._reading = trio.CancelScope()
        self._request = memoryview(bytearray(MAX_WRITE + 4096))
        os.set_blocking(self._device, False)

    def stop(self) -> None:
        """Read no more requests."""
        self._reading.cancel()

    async def run(self) -> None:
        """Serve. What was read is answered before this returns, unless the session has ended: nobody waits then."""
        async with trio.open_nursery() as nursery:
            with self._reading:
                await self._read(nursery)
                nursery.cancel_scope.cancel()

    async def _read(self, nursery: trio.Nursery) -> None:
        waiter, buffers = self._waiter, [self._request]
        while True:
            try:
                while not waiter.receive(buffers):
                    await waiter.wait()
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno != errno.ENOENT:
                    raise
                continue
            self._serve(nursery)
            if not self._room.value:
                async with self._room:
                    continue

    def _serve(self, nursery: trio.Nursery) -> None:
        request = self._request
        header: Header = IN_HEADER.unpack_from(request)
        kind = self._kinds.get(header[1])
        if kind is None:
            self._send_error(header, errno.ENOSYS)
            return
        operations = self._operations
        begun = perf_counter_ns()
        arguments = kind.arguments(header, request)
        handler = kind.handler
        answer: Any
        try:
            if (operations.careful and handler.find) or (handler.is_change and operations.in_hand.has_left):
                answer = self._in_turn(kind, arguments)
            else:
                answer = kind.method(*arguments)
        except StillCounting:
            answer = self._in_turn(kind, arguments)
        except Exception as error:
            self._fail(kind, header, arguments[0], begun, error)
            return
        if isinstance(answer, Later):
            self._room.acquire_nowait()
            self._waiter.task_begun()
            nursery.start_soon(self._answer_later, kind, header, arguments[0], begun, answer)
        else:
            self._send(kind, header, begun, answer)

    async def _answer_later(
        self, kind: Kind, header: Header, about: int, begun: int, answer: Later[Reply] | Reply
    ) -> None:
        try:
            while isinstance(answer, Later):
                try:
                    answer = await answer.wait()
                except StillCounting as still:
                    await still.counted.wait()
        except Exception as error:
            self._fail(kind, header, about, begun, error)
        else:
            self._send(kind, header, begun, answer)
        finally:
            self._waiter.task_ended()
            self._room.release()

    def _in_turn(self, kind: Kind, arguments: tuple[Any, ...]) -> Later[Any]:
        """The answer of a request that may have to wait: for its turn, or for totals that are still being counted."""
        arguments = _kept(arguments)
        call = kind.handler.prepare(self._operations, *arguments)
        return Later(partial(self._run_in_turn, kind.handler, arguments[0], call))

    async def _run_in_turn(self, handler: Handler, about: int, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - as the method answers
        realm = None if handler.find is None else await handler.find(self._operations, about)
        return call() if realm is None or realm.careful is None else await realm.careful.run(call)

    def _send(self, kind: Kind, header: Header, begun: int, answer: Reply | Lacking) -> None:
        if isinstance(answer, Lacking):
            self._refuse(kind, header, begun, answer.errno)
            return
        if kind.is_answered:
            length = _HEADER_BYTES + len(answer)
            try:
                self._write(_OUT_HEADER.pack(length, 0, header[2]), answer)
            except OSError:  # a reply of ours that the kernel does not take
                log.exception("%s was answered wrongly", kind.handler.name)
                self._refuse(kind, header, begun, errno.EIO)
                return
            if kind.opens:
                self._told()
        self._operations.recorder.ended(kind.first, begun)

    def _fail(self, kind: Kind, header: Header, about: object, begun: int, error: Exception) -> None:
        number = errno.EIO
        if isinstance(error, (Refusal, OSError)) and error.errno:
            number = error.errno
        else:
            turn = _turn(self._operations, kind, about)
            log.error("%s failed", kind.handler.name, exc_info=error, extra={"turn": turn})
        self._refuse(kind, header, begun, number)

    def _refuse(self, kind: Kind, header: Header, begun: int, number: int) -> None:
        recorder = self._operations.recorder
        recorder.errors[kind.handler.name, number] += 1
        recorder.ended(kind.first, begun)
        if kind.is_answered:
            self._send_error(header, number)

    def _send_error(self, header: Header, number: int) -> None:
        self._write(_OUT_HEADER.pack(_HEADER_BYTES, -number, header[2]), b"")

    def _write(self, header: bytes, answer: Reply) -> None:
        try:
            if len(answer) <= _SMALL and answer.__class__ is bytes:
                os.write(self._device, header + answer)
            else:
                os.writev(self._device, [header, answer])
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise


def _kept(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that outlive the request that they lie in."""
    return tuple(bytes(each) if isinstance(each, memoryview) else each for each in arguments)


def _turn(operations: Operations, kind: Kind, number: object) -> str | None:
    """The turn that a request is about, by the number that stands first in it, if it can be told."""
    if not isinstance(number, int):
        return None
    node = operations.inodes.at_hand(number)
    realm = operations.files.realm(number) if kind.handler.name in _OF_FILES else None if node is None else node.realm
    return getattr(realm, "turn", None)
