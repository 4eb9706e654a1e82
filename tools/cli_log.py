"""The command that tells what turns have done: log."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click

from fusefs.call_messages import MOST_PAGES, Operation, Operations
from fusefs.operation_kinds import Op
from tools.cli_output import Output, command, one_line
from tools.exits import Exit, Failure
from tools.turn_name import TURN

_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@command("log")
@click.option("--turn", type=TURN, metavar="T", help="Of this turn: its id, or the key.")
@click.option("--user", metavar="U", help="Of this user's turns.")
@click.option(
    "--op", type=click.Choice([op.value for op in Op]), metavar="NAME", help=f"Of this kind: {', '.join(Op)}."
)
@click.option("--failed", is_flag=True, help="Only what did not end well.")
@click.option("--since", metavar="T", help="Not before: a time such as 2026-11-30T12:00, or how long ago, such as 90m.")
@click.option(
    "--page", type=click.IntRange(1, MOST_PAGES), default=1, metavar="N", help="1, the default, has the newest 200."
)
def log(output: Output, since: str | None, **asked: object) -> None:
    """Show what was done, by which turn and call, with path and result, oldest first; the newest page where none is
    given.

    Which operations are recorded, and for how long, the configuration says.
    """
    wanted = {**asked, "since": None if since is None else _time(since, datetime.now().astimezone())}
    with output.client() as client:
        told = client.operations({name: value for name, value in wanted.items() if value not in (None, False)})
    output.answer(told, _lines(told))
    if told.has_more and not output.as_json:
        output.note(f"fusefs: there are older ones: --page {told.page + 1}")


def _time(text: str, now: datetime) -> str:
    """A time with its zone, as the control interface takes it. Raises Failure."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        right = "a time such as 2026-11-30T12:00, or how long ago, such as 90m"
        raise Failure(f"--since: {text} is no time; right: {right}", Exit.USAGE) from None
    return (at if at.tzinfo is not None else at.astimezone()).isoformat()


def _lines(told: Operations) -> Iterator[str]:
    return (_line(operation) for operation in told.operations)


def _line(operation: Operation) -> str:
    """`2026-11-30T12:00:00.123Z  t1 (guide, ada, acme)  call c1  write  a/b.txt` and, where it went wrong, why."""
    at = operation.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    whose = ", ".join(name for name in (operation.agent, operation.user, operation.org) if name is not None)
    about = f"{operation.turn} ({whose})" if operation.turn is not None else operation.org or "-"
    call = "" if operation.call is None else f"  call {operation.call}"
    by = "" if operation.who == "program" else f"  by {operation.who}"
    result = _result(operation)
    told = f"  {one_line(result)}" if result else ""
    return f"{at}  {about}{call}  {operation.op:8} {one_line(operation.path)}{told}{by}"


def _result(operation: Operation) -> str:
    is_ok = operation.result == "ok"
    if operation.op == Op.VERDICT:
        return "kept" if is_ok else f"refused: {operation.result}"
    return "" if is_ok else operation.result
