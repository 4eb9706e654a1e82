"""The control interface's part about what calls have handed over: attachments, their bytes, and A2A artifacts."""

import json
import logging
import uuid
from collections.abc import Sequence
from typing import Annotated, Protocol

import trio
from fastapi import FastAPI, Path, Query, Response

from fusefs import event_stream, views
from fusefs.call_messages import Attachment
from fusefs.event_records import Told
from fusefs.journal import AttachmentRecord
from fusefs.messages import HIGHEST_NUMBER
from policy import artifacts
from policy.refusals import NoSuchAttachment

log = logging.getLogger(__name__)

CallPath = Annotated[str, Path(description="the caller's call id")]
NamePath = Annotated[str, Path(description="the attachment's name")]
BYTES = {
    "description": "The bytes of the file, whose SHA-256 the attachment tells. Not to be shown by a browser as it is.",
    "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
}
ARTIFACTS = {
    "description": "Server-sent events `artifact`: the id, and as `data` an A2A artifactUpdate with one kept file.",
    "content": {event_stream.MEDIA_TYPE: {"schema": {"type": "object"}}},
}


class Attachments(Protocol):
    """What is asked of what turns have handed over; each method may raise a Refusal."""

    async def of_call(self, call: str) -> Sequence[AttachmentRecord]:
        """What the newest call of this id has handed over."""

    async def find(self, call: str, name: str) -> AttachmentRecord:
        """One of them."""

    async def content(self, attachment: AttachmentRecord) -> bytes:
        """Its bytes."""

    async def acknowledge(self, attachments: Sequence[AttachmentRecord]) -> None:
        """Delete the bytes."""

    async def after(self, turn: str, seq: int) -> Sequence[AttachmentRecord]:
        """What a turn has handed over after this number; it waits for that, and answers none where it has ended."""

    async def so_far(self, turn: str, seq: int) -> Sequence[AttachmentRecord]:
        """The same, without waiting."""


def add(app: FastAPI, attachments: Attachments) -> None:
    """Add the operations about attachments to the application."""

    @app.get("/v1/calls/{call}/attachments", tags=["calls"])
    async def list_attachments(call: CallPath) -> list[Attachment]:
        """What a call has handed over when it ended; `path` is null once the bytes are gone."""
        return [views.attachment(record) for record in await attachments.of_call(call)]

    @app.get("/v1/calls/{call}/attachments/{name}", tags=["calls"], response_class=Response, responses={200: BYTES})
    async def read_attachment(call: CallPath, name: NamePath) -> Response:
        """The bytes of one file, as they were judged and hashed; 404 once they are gone."""
        record = await attachments.find(call, name)
        headers = {
            "Content-Disposition": f'attachment; filename="{record.name}"',
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "sandbox",
            "ETag": f'"{record.sha256}"',
        }
        return Response(await attachments.content(record), media_type=record.media_type, headers=headers)

    @app.delete("/v1/calls/{call}/attachments", tags=["calls"])
    async def acknowledge_all(call: CallPath) -> list[Attachment]:
        """Acknowledge all files of a call: their bytes are deleted. A second time does nothing."""
        await attachments.acknowledge(await attachments.of_call(call))
        return await list_attachments(call)

    @app.delete("/v1/calls/{call}/attachments/{name}", tags=["calls"])
    async def acknowledge(call: CallPath, name: NamePath) -> Attachment:
        """Acknowledge one file: its bytes are deleted. A second time does nothing."""
        await attachments.acknowledge([await attachments.find(call, name)])
        return views.attachment(await attachments.find(call, name))

    @app.get("/v1/turns/{turn}/artifacts", tags=["turns"], response_class=Response, responses={200: ARTIFACTS})
    async def list_artifacts(
        turn: Annotated[str, Path(description="the caller's turn id, or the key")],
        task_id: Annotated[str, Query(description="the A2A task that the artifacts belong to")],
        context_id: Annotated[str, Query(description="the A2A context of that task")],
        accepted_output_modes: Annotated[list[str] | None, Query(description="media types; none: all")] = None,
        since: Annotated[int, Query(ge=0, le=HIGHEST_NUMBER, description="only those after the one of this id")] = 0,
        follow: Annotated[bool, Query(description="go on with each as it comes, until the turn ends")] = False,
    ) -> Response:
        """Each kept file of a turn once, as an A2A artifact; those that are acknowledged already are left out."""

        async def told(records: Sequence[AttachmentRecord]) -> list[Told]:
            wanted = [one for one in records if artifacts.accepts(one.media_type, accepted_output_modes or [])]
            updates = [(one.seq, await _update(one)) for one in wanted]
            return [Told(seq, "artifact", update) for seq, update in updates if update is not None]

        async def _update(record: AttachmentRecord) -> str | None:
            try:
                content = await attachments.content(record)
            except NoSuchAttachment:  # acknowledged, perhaps just now
                return None
            except OSError as error:
                log.error("turn %s: %s cannot be handed over: %s", record.turn, record.name, error)
                return None

            def dumped() -> str:
                number = str(uuid.uuid5(uuid.UUID(record.turn[-32:]), str(record.seq)))
                artifact = artifacts.artifact(number, record.name, record.media_type, content, record.call_id)
                return json.dumps(artifacts.artifact_update(task_id, context_id, artifact))

            return await trio.to_thread.run_sync(dumped)  # of 4 MiB it takes its time

        async def after(seq: int) -> Sequence[Told]:
            while records := await attachments.after(turn, seq):
                if found := await told(records):
                    return found
                seq = records[-1].seq
            return ()

        so_far = await attachments.so_far(turn, since)  # or there is no such turn
        return event_stream.stream(after, since) if follow else event_stream.backlog(await told(so_far))
