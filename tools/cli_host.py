"""The commands about this host and its mount: doctor, check, mount, reload, umount.

Paths are taken as Path, not as click.Path, which looks at them: in a mount whose daemon is stopped that never ends.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from fusefs.logs import Form, Level, Logs
from fusefs.settings import HANG_SECONDS
from policy.deployment import Agent, Deployment
from policy.limits import Bounds
from tools import mounting
from tools.cli_output import Output, Seconds, command, size
from tools.doctor import Check, State, examine
from tools.exits import Exit, Failure
from tools.mountinfo import located
from tools.reloading import reload as take_up_anew
from tools.unmounting import umount as take_away

STATE_HELP = "Where turns and workspaces are kept.  [default: /var/lib/fusefs for root, else your state directory]"


@command("doctor")
@click.option("--state", type=Path, metavar="DIR", help=STATE_HELP)
def doctor(output: Output, state: Path | None) -> None:
    """Show what this host offers to fusefs, what is missing and how to get it.

    Fails where something is missing without which fusefs does not run.
    """
    checks = examine((state or mounting.default_state()).absolute(), output.socket)
    output.answer([dataclasses.asdict(check) for check in checks], _diagnosis(checks))
    if any(check.state is State.MISSING for check in checks):
        output.note("fusefs: something that it needs is missing")
        raise SystemExit(Exit.FAILED)


def _diagnosis(checks: list[Check]) -> Iterable[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.state:7}  {check.name:{width}}  {check.found}"
        if check.remedy is not None:
            yield f"{'':7}  {'':{width}}  to get it: {check.remedy}"


@command("check")
@click.argument("file", type=Path)
def check(output: Output, file: Path) -> None:
    """Validate a configuration FILE and print the limits in force for each agent."""
    deployment = mounting.read_config(file)
    document = {
        "file": str(file),
        "fusefs": deployment.fusefs.model_dump(mode="json"),
        "agents": [_agent_document(agent) for agent in deployment.agents],
    }
    output.answer(document, _deployment_lines(file, deployment))


def _agent_document(agent: Agent) -> dict[str, object]:
    limits = agent.limits
    return {
        "id": agent.id,
        "deadline_seconds": agent.deadline_seconds,
        "file": {"bytes": limits.file_bytes},
        "turn": limits.turn._asdict(),
        "user": limits.user._asdict(),
        "scratch": limits.scratch._asdict(),
        "on_limit": agent.sandbox.on_limit,
        "output": list(agent.output.files),
        "context": agent.context.model_dump(mode="json"),
    }


def _deployment_lines(file: Path, deployment: Deployment) -> Iterable[str]:
    yield f"{file} is valid"
    settings = deployment.fusefs
    yield f"live turns      {settings.max_turns}, of one org {settings.max_turns_per_org}"
    if not deployment.agents:
        yield "agents          none listed: any agent, with the default limits"
    for agent in deployment.agents:
        limits = agent.limits
        yield f"agent {agent.id}"
        yield f"  deadline      {agent.deadline_seconds:g} s"
        yield f"  file          {size(limits.file_bytes)}"
        yield f"  turn          {_bounds(limits.turn)}"
        yield f"  user          {_bounds(limits.user)}"
        yield f"  scratch       {_bounds(limits.scratch)}"
        yield f"  on limit      {agent.sandbox.on_limit}"
        yield f"  output files  {', '.join(agent.output.files) or 'none: no outbox'}"


def _bounds(bounds: Bounds) -> str:
    return f"{size(bounds.bytes)}, {bounds.inodes} inodes"


@contextmanager
def in_log(logs: Logs) -> Iterator[Callable[[str], None]]:
    """Messages as lines of the log: what becomes the daemon has standard error for nothing else."""
    logs.begin()
    log = logging.getLogger("fusefs.mount")
    try:
        yield lambda message: log.warning("%s", message)
    except Failure as failure:
        log.error("%s", failure)
        raise SystemExit(failure.exit) from failure


FORMAT_HELP = "Of the daemon's log: text, or one JSON object a line.  [default: text]"
LEVEL_HELP = "What it logs: this, and what is more important.  [default: info]"


@command("mount")
@click.argument("mountpoint", metavar="MNT", type=Path)
@click.option("--config", type=Path, metavar="FILE", help="The configuration.  [default: any agent, default limits]")
@click.option("--state", type=Path, metavar="DIR", help=STATE_HELP)
@click.option("--foreground", is_flag=True, help="Stay, and log to standard error: for a service manager.")
@click.option("--no-resend", is_flag=True, help="Do without what Linux 6.9 brought: a worker's death is an error.")
@click.option("--log-format", type=click.Choice([form.value for form in Form]), default="text", help=FORMAT_HELP)
@click.option("--log-level", type=click.Choice([level.value for level in Level]), default="info", help=LEVEL_HELP)
@click.option("--hang-seconds", type=Seconds(0, 86_400), default=HANG_SECONDS, hidden=True)
def mount(
    output: Output,
    mountpoint: Path,
    config: Path | None,
    state: Path | None,
    foreground: bool,
    no_resend: bool,
    log_format: str,
    log_level: str,
    hang_seconds: float,
) -> None:
    """Start the daemon and mount at MNT; returns when the mount answers.

    A mount that a killed daemon left behind at MNT is cleaned up first.
    """
    survival = mounting.Survival(no_resend, hang_seconds)
    logs = Logs(Form(log_format), Level(log_level))
    with in_log(logs) if foreground else nullcontext(output.note) as note:
        plan = mounting.plan(mountpoint, config, state, output.socket, survival, logs)
        mounting.prepare(plan, note)
        if foreground:
            mounting.run_in_foreground(plan)
    ready = mounting.start(plan.command(), plan.log)
    document = {
        "mountpoint": str(plan.mountpoint),
        "pid": ready.pid,
        "socket": str(plan.socket),
        "state": str(plan.state),
        "config": None if plan.config is None else str(plan.config),
        "log": str(plan.log),
        "features": ready.features,
    }
    output.answer(document, _mounted_lines(plan, ready))


def _mounted_lines(plan: mounting.Plan, ready: mounting.Ready) -> Iterable[str]:
    yield f"mounted at {plan.mountpoint}, pid {ready.pid}"
    yield f"socket {plan.socket}, state {plan.state}, log {plan.log}"
    yield f"kernel features in force: {', '.join(ready.features) or 'none'}"


@command("reload")
def reload(output: Output) -> None:
    """Have the daemon take up new code and configuration, without a failed call in the mount.

    Where they cannot be used it says why, and all goes on as it was.
    """
    now = take_up_anew(output.socket)
    config = now.config or "none: any agent, with the default limits"
    lines = [f"reloaded: worker {now.pid} serves {now.mountpoint}", f"configuration {config}"]
    output.answer(now.model_dump(mode="json"), lines)


@command("umount")
@click.argument("mountpoint", metavar="MNT", type=Path)
def umount(output: Output, mountpoint: Path) -> None:
    """Unmount MNT, and wait until its daemon has gone. Live turns are kept for the next mount."""
    place = located(mountpoint)
    pid = take_away(place, output.socket)
    ended = "" if pid is None else f", its daemon (pid {pid}) has ended"
    output.answer({"mountpoint": str(place), "pid": pid}, [f"unmounted {place}{ended}"])
