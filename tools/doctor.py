"""What this host offers to fusefs, what is missing, and how to get it."""

import errno
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fusefs.cgroups import Cgroup
from fusefs.messages import DaemonInfo
from fusefs.session import FEATURES, RESEND, Feature
from tools import confine, host, surroundings
from tools.client import Client, ControlError, SocketForbidden

ASK_SECONDS = 5.0


class State(StrEnum):
    """What a check found. Without what is `missing` fusefs does not run; without `absent` it does less.

    `unknown`: this user may not look.
    """

    OK = "ok"
    UNKNOWN = "unknown"
    ABSENT = "absent"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what was found, and how to get it where it is not there."""

    name: str
    state: State
    found: str
    remedy: str | None = None


def examine(state: Path, socket: Path) -> list[Check]:
    """Every check, in the order in which they matter; `state` is where the workspaces would be kept."""
    answer = _ask(socket)
    daemon = answer if isinstance(answer, DaemonInfo) else None
    return [
        _from_probe(host.DEVICE, "can be opened", host.device(), State.MISSING),
        _from_probe("right to mount", _how_mounted(), host.mount_right(), State.MISSING),
        _fusermount3(),
        *_for_other_users(),
        _bubblewrap(),
        _cgroups(),
        _attributes(state),
        Check("kernel", State.OK, f"Linux {platform.release()}"),
        *(_feature(feature, daemon) for feature in FEATURES),
        _death(daemon),
        _daemon(answer),
    ]


def _from_probe(name: str, found: str, missing: host.Missing | None, otherwise: State) -> Check:
    if missing is None:
        return Check(name, State.OK, found)
    return Check(name, otherwise, missing.what, missing.remedy)


def _how_mounted() -> str:
    return "as root" if os.geteuid() == 0 else "through fusermount3"


def _fusermount3() -> Check:
    """Root mounts by itself; everyone else needs the helper."""
    found = shutil.which("fusermount3") or ""
    otherwise = State.ABSENT if os.geteuid() == 0 else State.MISSING
    return _from_probe("fusermount3", found, host.fusermount3(), otherwise)


def _for_other_users() -> Iterator[Check]:
    """Without root, only the mounting user can enter the mount, unless /etc/fuse.conf allows more."""
    if os.geteuid() == 0:
        return
    config = Path("/etc/fuse.conf")
    lines = config.read_text().splitlines() if config.exists() else []
    if any(line.strip() == "user_allow_other" for line in lines):
        yield Check("user_allow_other", State.OK, f"in {config}")
    else:
        remedy = f"put the line user_allow_other into {config}, or mount as root"
        yield Check("user_allow_other", State.ABSENT, "only you can enter your mounts", remedy)


def _bubblewrap() -> Check:
    """Whether `fusefs run` can confine, tried with a program that does nothing."""
    name = "bubblewrap"
    try:
        programs = surroundings.programs()
    except surroundings.ProgramMissing as error:
        remedy = f"apt-get install {error.package}"
        return Check(name, State.ABSENT, f"{error.program} not found: no confined runs", remedy)
    alone = confine.in_own_mounts(programs, os.geteuid() == 0)
    words = [*alone, programs.bwrap, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        remedy = "user namespaces have to be allowed; in a container, --cap-add SYS_ADMIN and no seccomp filter"
        return Check(name, State.ABSENT, f"cannot confine here: {tried.stderr.strip()}", remedy)
    version = subprocess.run([programs.bwrap, "--version"], capture_output=True, text=True, check=False)
    return Check(name, State.OK, version.stdout.strip())


def _cgroups() -> Check:
    """Whether a call can have a cgroup of its own, tried with a process that does nothing."""
    name = "cgroups for calls"
    with subprocess.Popen(["sleep", "60"]) as idle:
        try:
            cgroup = Cgroup.around(idle.pid)
        except OSError:
            found = "none can be made: calls outside of a PID namespace are known by their processes, as far as can be"
            return Check(name, State.ABSENT, found, "Linux 5.14 or later, and cgroup2 mounted writable for the daemon")
        finally:
            idle.kill()
            idle.wait()
        cgroup.remove()
    return Check(name, State.OK, f"in {cgroup.path.parent}")


def _attributes(state: Path) -> Check:
    """Whether files in the state directory, or in what it will be made in, can have `user.` attributes."""
    name = "extended attributes"
    place = next(folder for folder in (state, *state.parents) if os.path.isdir(folder))  # also where we may not look
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            os.setxattr(probe.fileno(), "user.fusefs.probe", b"1")
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            remedy = "keep the state directory on ext4, xfs or btrfs"
            return Check(name, State.ABSENT, f"{place} has none: programs cannot set their own", remedy)
        return Check(name, State.ABSENT, f"cannot be tried in {place}: {error.strerror}", "see --state")
    return Check(name, State.OK, f"in {place}")


def _feature(feature: Feature, daemon: DaemonInfo | None) -> Check:
    """What a running daemon has in force is known; otherwise the kernel's version has to tell."""
    name = f"kernel {feature.name}"
    if daemon is not None:
        if feature.name in daemon.features:
            return Check(name, State.OK, f"in force: {feature.buys}")
        return Check(name, State.ABSENT, f"not in force: {feature.buys}", f"Linux {feature.since} or later")
    if _numbers(platform.release()) >= _numbers(feature.since):
        return Check(name, State.OK, f"since Linux {feature.since}: {feature.buys}")
    return Check(name, State.ABSENT, feature.buys, f"Linux {feature.since} or later")


def _death(daemon: DaemonInfo | None) -> Check:
    """What programs in the mount notice when a worker dies."""
    name = "when a worker dies"
    (resend,) = (feature for feature in FEATURES if feature.name == RESEND)
    if _feature(resend, daemon).state is State.OK:
        return Check(name, State.OK, "programs wait until the next one serves, and no call fails")
    found = "the session is aborted and mounted anew: programs get an error"
    return Check(name, State.ABSENT, found, f"Linux {resend.since} or later, and no --no-resend")


def _daemon(daemon: DaemonInfo | ControlError) -> Check:
    if isinstance(daemon, SocketForbidden):
        remedy = "as root, usermod --append --groups GROUP USER with the operator group (fusefs), then log in anew"
        return Check("daemon", State.UNKNOWN, str(daemon), remedy)
    if isinstance(daemon, ControlError):
        return Check("daemon", State.ABSENT, str(daemon), "fusefs mount MNT")
    pids = f"pid {daemon.supervisor_pid}, worker {daemon.pid}"
    return Check("daemon", State.OK, f"{daemon.version}, {pids}, at {daemon.mountpoint}")


def _ask(socket: Path) -> DaemonInfo | ControlError:
    try:
        with Client(socket, timeout=ASK_SECONDS) as client:
            return client.daemon()
    except ControlError as error:
        return error


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 6.18 of `6.18.0-rc1`."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
