"""The argument TURN: a turn's id or key, which a shell completes out of those that are live."""

import contextlib
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tools.client import Client, ControlError, default_socket

COMPLETION_SECONDS = 1.0
"""A shell that waits longer for a daemon is a nuisance."""


class TurnName(click.ParamType[str]):
    """A turn's id or key."""

    name = "turn"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The ids of live turns that begin so; none where no daemon answers."""
        said = ctx.params.get("socket") or ctx.find_root().params.get("socket")
        socket = Path(said) if said else default_socket()
        with contextlib.suppress(ControlError), Client(socket, timeout=COMPLETION_SECONDS) as client:
            turns = client.turns()
            names = [turn.turn for turn in turns] + [turn.key for turn in turns if incomplete]
            return [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return []


TURN = TurnName()
