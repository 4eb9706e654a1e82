"""How a call is confined: what it needs and what the host has come in, bubblewrap's arguments come out.

Pure: nothing here looks at the host. Later arguments of bubblewrap lie above earlier ones, so order matters:
the host, then masks on it, then what belongs to the turn, then what the caller asked for, and in the end every
folder that was only made to mount on becomes read-only: memory in it would be counted by nobody.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tools.hiding import within

OWN = ("/dev", "/proc", "/run", "/tmp")
"""Folders of / that a call has of its own. /run is where a host has the sockets of its services."""
SHARED_MEMORY_BYTES = 64 << 20  # as Docker has it


class Bind(NamedTuple):
    """A file or folder of the host that the caller wants in the call; both paths are absolute."""

    source: str
    target: str
    writable: bool


class Needs(NamedTuple):
    """What one call needs: where its turn's files are, whose it is, and what its caller asked for."""

    workspace: str
    context: str
    uid: int
    gid: int
    env: Mapping[str, str]
    binds: Sequence[Bind] = ()
    network: bool = False


class Host(NamedTuple):
    """What the host has.

    `top` is the content of /, each name with what it leads to if it is a symbolic link; `hidden` are folders that no
    call may see; `also_tmp` those besides /tmp that programs take for temporary files; `resolver` is where
    /etc/resolv.conf leads.
    """

    top: Mapping[str, str | None]
    hidden: Sequence[str]
    also_tmp: Sequence[str]
    resolver: str | None


class BindRefused(ValueError):
    """A --bind that cannot be, or would show what a call must not see; str() says why, for people."""


def parse_bind(text: str) -> Bind:
    """A bind as it is typed, SRC[:DST][:ro|rw]. Raises BindRefused."""
    parts = text.split(":")
    mode = parts.pop() if len(parts) > 1 and parts[-1] in ("ro", "rw") else "ro"
    if len(parts) > 2 or not all(parts):
        raise BindRefused(f"--bind {text}: it is SRC[:DST][:ro|rw], and a path has no colon")
    source = os.path.abspath(parts[0])
    target = parts[-1] if len(parts) == 2 else source
    if not target.startswith("/") or target.startswith("//") or os.path.normpath(target) != target or target == "/":
        raise BindRefused(f"--bind {text}: {target} is not an absolute path below /, without . and ..")
    return Bind(source, target, mode == "rw")


def check_binds(needs: Needs, host: Host) -> None:
    """Raise BindRefused where a bind would show what is hidden, or take the place of what a call has of its own.

    The sources have no symbolic links in them.
    """
    kept = [*host.hidden, needs.workspace, needs.context]
    own = [*kept, *host.also_tmp, "/dev", "/proc", "/tmp"]
    for bind in needs.binds:
        for place in kept:
            if within(bind.source, place) or within(place, bind.source):
                raise BindRefused(f"--bind {bind.source}: it would show {place}, which calls must not see")
        for place in own:
            if within(bind.target, place) or within(place, bind.target):
                raise BindRefused(f"--bind to {bind.target}: calls have {place} of their own")


def options(needs: Needs, host: Host) -> list[str]:
    """The options of bubblewrap for a call. Raises BindRefused."""
    check_binds(needs, host)
    made, tmp = list(_made(needs, host)), list(_tmp(needs, host))
    return [
        *_namespaces(needs),
        *_host(host),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),
        *(word for place in made for word in ("--tmpfs", place)),
        *tmp,
        *_ancestors(needs),
        *("--bind", needs.workspace, needs.workspace),
        *("--ro-bind", needs.context, needs.context),
        *(word for bind in needs.binds for word in ("--bind" if bind.writable else "--ro-bind", *bind[:2])),
        *_resolver(needs, host),
        *(word for place in [*_showing(made, host), "/dev", "/"] for word in ("--remount-ro", place)),
        *(word for name, value in needs.env.items() for word in ("--setenv", name, value)),
        *("--chdir", needs.workspace),
    ]


def _namespaces(needs: Needs) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
    if not needs.network:
        yield "--unshare-net"


def _host(host: Host) -> Iterator[str]:
    """The host's files, read-only: what is in / one by one, so that a bind can have a new place there."""
    for name, leads_to in sorted(host.top.items()):
        place = f"/{name}"
        if place in OWN or place in host.hidden:
            continue
        yield from ("--ro-bind", place, place) if leads_to is None else ("--symlink", leads_to, place)


def _masked(host: Host) -> Iterator[str]:
    """The hidden places that would show: not those in a folder that the call has of its own."""
    for place in host.hidden:
        top = "/" + place.split("/")[1]
        if top not in OWN and place != top:
            yield place


def _made(needs: Needs, host: Host) -> Iterator[str]:
    """Folders that are empty but for what is mounted in them."""
    yield "/run"
    yield from _masked(host)
    yield from (folder for folder in ("/tmp", *host.also_tmp) if _holds_the_turn(folder, needs))


def _showing(made: Sequence[str], host: Host) -> Iterator[str]:
    """Those of the made folders that nothing lies above which was mounted later."""
    for order, place in enumerate(made):
        later = made[order + 1 :]
        tmp = [folder for folder in host.also_tmp if folder != place]
        if not any(within(place, folder) for folder in (*later, *tmp)):
            yield place


def _tmp(needs: Needs, host: Host) -> Iterator[str]:
    """The folders for temporary files are the workspace, so that what programs put there is counted as well.

    Where the mount itself lies in one, that one cannot be: it is empty and read-only.
    """
    for folder in ("/tmp", *host.also_tmp):
        if not _holds_the_turn(folder, needs):
            yield from ("--bind", needs.workspace, folder)


def _ancestors(needs: Needs) -> Iterator[str]:
    """The folders around what is bound, for everyone to pass: bubblewrap would make them for root alone."""
    places = [needs.workspace, needs.context, *(bind.target for bind in needs.binds)]
    folders = {place[:end]: None for place in places for end in range(1, len(place)) if place[end] == "/"}
    for folder in folders:
        yield from ("--dir", folder)


def _holds_the_turn(folder: str, needs: Needs) -> bool:
    return within(needs.workspace, folder)


def _resolver(needs: Needs, host: Host) -> Iterable[str]:
    """Names are looked up as the host does; the file is often kept in /run."""
    if needs.network and host.resolver is not None and within(host.resolver, "/run"):
        return ("--ro-bind", host.resolver, host.resolver)
    return ()


NEEDED_CAPABILITIES = ("DAC_READ_SEARCH", "SETUID", "SETGID", "SETPCAP")


class Programs(NamedTuple):
    """Where the programs are that confine: absolute paths."""

    unshare: str
    bwrap: str
    env: str
    setpriv: str


PACKAGES = Programs("util-linux", "bubblewrap", "coreutils", "util-linux")
"""The Debian package of each."""


class Given(NamedTuple):
    """The words that stand for descriptors which bubblewrap is given.

    Its options, where it reports, where it waits until it may go on, the filter of system calls.
    """

    options: str
    report: str
    go: str
    filter: str


def in_own_mounts(programs: Programs, as_root: bool) -> list[str]:
    """The words before a command that is to run in a mount namespace which nothing is propagated to."""
    user = [] if as_root else ["--user", "--map-current-user"]
    return [programs.unshare, "--mount", "--propagation", "private", *user, "--"]


def command(
    programs: Programs, given: Given, needs: Needs, as_root: bool, signals: Sequence[str], program: Sequence[str]
) -> list[str]:
    """The whole command line of a confined program.

    A mount namespace comes first that nothing is propagated to: what the host mounts later does not appear in the
    call. Last come env, which gives the program the default for the signals named, and setpriv, which gives it the
    turn's uid and gid and takes every capability away. Both end with 126 and 127 as env(1) does.
    """
    inside = [programs.bwrap, "--args", given.options, "--json-status-fd", given.report]
    inside += ["--block-fd", given.go, "--seccomp", given.filter]
    last = [programs.env, *([f"--default-signal={','.join(signals)}"] if signals else []), programs.setpriv]
    if as_root:
        # To enter the workspace, and for setpriv, which leaves none: the bounding set is emptied for good.
        inside += ["--cap-drop", "ALL"]
        inside += [word for name in NEEDED_CAPABILITIES for word in ("--cap-add", f"CAP_{name}")]
        last += [f"--reuid={needs.uid}", f"--regid={needs.gid}", "--clear-groups"]
        last += ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    return [*in_own_mounts(programs, as_root), *inside, "--", *last, "--no-new-privs", "--", *program]
