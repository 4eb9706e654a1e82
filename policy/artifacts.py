"""A kept file as an artifact of the A2A protocol, version 1.0, and which artifacts a caller takes.

In the protocol's JSON form: bytes are base64 (RFC 4648, section 4, with padding), names are in camelCase.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]  # a JSON object


def artifact(artifact_id: str, filename: str, media_type: str, content: bytes, call_id: str) -> Message:
    """The file `filename` that the call `call_id` left. `artifact_id` is the caller's to tell artifacts apart."""
    part = {
        "raw": b64encode(content).decode("ascii"),
        "mediaType": media_type,
        "filename": filename,
        "metadata": {"call_id": call_id},
    }
    return {"artifactId": artifact_id, "name": "file", "parts": [part]}


def artifact_update(task_id: str, context_id: str, artifact: Message) -> Message:
    """`artifact`, all of it, as an event of the task's stream."""
    return {"artifactUpdate": {"taskId": task_id, "contextId": context_id, "artifact": artifact, "lastChunk": True}}


def accepts(media_type: str, accepted_output_modes: Sequence[str]) -> bool:
    """Whether a caller that sent `accepted_output_modes` takes `media_type`; an empty list takes all.

    Media types are compared without their parameters and without regard to case, and `image/*` and `*/*` stand for
    what they do in HTTP (RFC 9110, sections 8.3.1 and 12.5.1).
    """
    if not accepted_output_modes:
        return True
    offered = _essence(media_type)
    ranges = {offered, f"{offered.partition('/')[0]}/*", "*/*"}
    return any(_essence(mode) in ranges for mode in accepted_output_modes)


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
