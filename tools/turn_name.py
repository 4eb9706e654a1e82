"""The arguments TURN and CALL: an id (of a turn also its key), which a shell completes out of those that are live."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fusefs.messages import TurnView
from tools.client import Client, ControlError, default_socket

COMPLETION_SECONDS = 1.0
"""A shell that waits longer for a daemon is a nuisance."""


def live_turns(socket: Path | None, incomplete: str) -> list[CompletionItem]:
    """The ids of live turns that begin so, and their keys once something is typed; none where no daemon answers."""
    turns = _turns(socket)
    return _beginning_so([turn.turn for turn in turns] + [turn.key for turn in turns if incomplete], incomplete)


def _turns(socket: Path | None) -> list[TurnView]:
    with contextlib.suppress(ControlError), Client(socket or default_socket(), timeout=COMPLETION_SECONDS) as client:
        return client.turns()
    return []


def _said_socket(ctx: click.Context) -> Path | None:
    said = ctx.params.get("socket") or ctx.find_root().params.get("socket")
    return Path(said) if said else None


def _beginning_so(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _addressed(kind: click.ParamType[str], value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """An id as the control interface has addresses for."""
    if not value or "/" in value:
        right = "an id or key as fusefs turn list has it" if kind.name == "turn" else "an id as fusefs turn show has it"
        kind.fail(f"{value!r} is the id of no {kind.name}; right: {right}.", param, ctx)
    return value


class TurnName(click.ParamType[str]):
    """A turn's id or key."""

    name = "turn"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        """As it is, unless it would be another address."""
        return _addressed(self, value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The live ones that begin so."""
        return live_turns(_said_socket(ctx), incomplete)


class CallName(click.ParamType[str]):
    """A call's id."""

    name = "call"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        """As it is, unless it would be another address."""
        return _addressed(self, value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The live ones that begin so."""
        calls = (call for turn in _turns(_said_socket(ctx)) for call in turn.calls)
        return _beginning_so((call.call for call in calls), incomplete)


TURN = TurnName()
CALL = CallName()
