"""When a turn ends by itself, and which refusals stop its calls."""

from typing import Literal

from policy.refusals import Limit

EXPIRES_AFTER_S = 60.0
"""How long after its deadline a turn ends by itself (CONTRACT, Turns and calls)."""


def expires_at(deadline_at: float) -> float:
    """When a turn with this deadline ends by itself, on the same clock."""
    return deadline_at + EXPIRES_AFTER_S


def stops_calls(on_limit: Literal["refuse", "stop"], limit: Limit) -> bool:
    """Whether a refusal by this limit stops the calls of its turn, and empties its workspace.

    The file limit never does: what it refuses is one file's length, and takes no room that emptying would give back.
    A file that is really filled up to it meets the turn's limit first, by the room that its name takes.
    """
    return on_limit == "stop" and limit is not Limit.FILE
