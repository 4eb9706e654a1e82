"""`fusefs run` among click's commands: its words are left as they are, and a shell completes them all the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tools.run_words import FLAGS, KINDS, MANY
from tools.turn_name import live_turns

VALUES = {"confine": ("bwrap", "none")}
FILES = frozenset({"socket", "bind"})


class Verbatim(click.Command):
    """A command that is given its words as they are: click would take the lone `--` away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words."""
        ctx.params["words"] = [*args]
        return []

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Options, what they take, and the live turns; after `--` the names of files."""
        words: Sequence[str] = ctx.params["words"]
        if "--" in words:
            return [CompletionItem(incomplete, type="file")]
        if words and (option := _awaited(words[-1])) is not None:
            if option in FILES:
                return [CompletionItem(incomplete, type="file")]
            return _beginning_so(VALUES.get(option, ()), incomplete)
        if incomplete.startswith("-"):
            return _beginning_so([f"--{name}" for name in (*KINDS, *MANY, *FLAGS, "help")], incomplete)
        if any(_is_turn(words, at) for at in range(len(words))):
            return _beginning_so(["--"], incomplete)
        return live_turns(_socket(ctx, words), incomplete)


def _awaited(word: str) -> str | None:
    """The option that a word names, where its value is to follow."""
    name = word.removeprefix("--")
    return name if word.startswith("--") and (name in KINDS or name in MANY) else None


def _is_turn(words: Sequence[str], at: int) -> bool:
    return not words[at].startswith("-") and (at == 0 or _awaited(words[at - 1]) is None)


def _socket(ctx: click.Context, words: Sequence[str]) -> Path | None:
    """Where `--socket` says that the daemon is, after the command's name or before it."""
    said: Any = ctx.find_root().params.get("socket")
    for at, word in enumerate(words):
        if word == "--socket":
            said = words[at + 1]
        elif word.startswith("--socket="):
            said = word.removeprefix("--socket=")
    return Path(said) if said else None


def _beginning_so(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]
