"""What a client is still sending when it is answered: dropped, so that the answer gets out and the connection ends.

hypercorn puts what comes into a queue, and a full one that nobody reads any more holds up the answer itself: the daemon
would wait for the client to be read, and the client for the daemon to read on.
"""

import trio
from starlette.types import Message, Receive, Scope, Send


def dropped(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """The same two of a request, with which an answer may be sent before all of the request has come.

    hypercorn closes the connection after such an answer; a client whose sending fails then finds the answer.
    """
    if not _has_body(scope):
        return receive, send
    is_whole = False

    async def received() -> Message:
        nonlocal is_whole
        message = await receive()
        is_whole = not message.get("more_body", False)
        return message

    async def drop() -> None:
        while not is_whole:
            await received()

    async def sent(message: Message) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drop)
            await send(message)
            nursery.cancel_scope.cancel()

    return received, sent


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope.get("headers", ()))
