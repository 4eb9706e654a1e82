"""How a call is confined, by literals: what bubblewrap is told, in which order, and which binds are refused."""

import pytest

from tools.confine import Bind, BindRefused, Given, Host, Needs, Programs, command, options, parse_bind

WORK, CONTEXT = "/mnt/fusefs/turns/k/work", "/mnt/fusefs/turns/k/context"
NEEDS = Needs(WORK, CONTEXT, 1000, 1001, {"HOME": WORK})
TOP = {"usr": None, "bin": "usr/bin", "etc": None, "mnt": None, "var": None} | dict.fromkeys(
    ["dev", "proc", "run", "tmp"]
)
HOST = Host(TOP, ["/mnt/fusefs", "/var/lib/fusefs", "/run/fusefs"], ["/var/tmp"], "/run/resolved/resolv.conf")
PROGRAMS = Programs("/b/unshare", "/b/bwrap", "/b/env", "/b/setpriv")
GIVEN = Given("O", "R", "G", "F")


def groups(words: list[str]) -> list[tuple[str, ...]]:
    """Options with their values."""
    found: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--"):
            found.append((word,))
        else:
            found[-1] += (word,)
    return found


def position(words: list[tuple[str, ...]], *wanted: str) -> int:
    return words.index(wanted)


def test_the_host_is_read_only_and_its_own_folders_are_not_shown() -> None:
    told = groups(options(NEEDS, HOST))

    assert ("--ro-bind", "/usr", "/usr") in told
    assert ("--symlink", "usr/bin", "/bin") in told
    writable = {option[2] for option in told if option[0] == "--bind"}
    assert writable == {WORK, "/tmp", "/var/tmp"}
    assert {option[1] for option in told if option[0] == "--bind"} == {WORK}
    assert not any(option[0] == "--ro-bind" and option[1] in ("/run", "/dev", "/proc", "/tmp") for option in told)


def test_hidden_places_are_masked_above_the_host_and_below_the_turn() -> None:
    told = groups(options(NEEDS, HOST))

    for place in ("/mnt/fusefs", "/var/lib/fusefs"):
        assert position(told, "--ro-bind", "/" + place.split("/")[1], "/" + place.split("/")[1]) < position(
            told, "--tmpfs", place
        )
        assert position(told, "--tmpfs", place) < position(told, "--bind", WORK, WORK)
        assert position(told, "--bind", WORK, WORK) < position(told, "--remount-ro", place)
    assert ("--ro-bind", CONTEXT, CONTEXT) in told


def test_what_was_made_to_mount_on_becomes_read_only() -> None:
    told = groups(options(NEEDS, HOST))

    made = {option[1] for option in told if option[0] == "--tmpfs"} - {"/dev/shm"}
    frozen = {option[1] for option in told if option[0] == "--remount-ro"}
    assert made | {"/dev", "/"} == frozen
    assert ("--size", str(64 << 20)) in told


def test_tmp_is_empty_where_the_mount_lies_in_it() -> None:
    needs = NEEDS._replace(workspace="/tmp/m/turns/k/work", context="/tmp/m/turns/k/context")

    told = groups(options(needs, HOST._replace(hidden=["/tmp/m"])))

    assert ("--tmpfs", "/tmp") in told
    assert ("--bind", needs.workspace, "/tmp") not in told
    assert ("--bind", needs.workspace, "/var/tmp") in told
    assert ("--tmpfs", "/tmp/m") not in told


def test_what_something_else_was_mounted_on_is_not_looked_at_again() -> None:
    host = HOST._replace(hidden=["/mnt/a/fusefs", "/mnt/a", "/var/tmp/state"])

    told = groups(options(NEEDS._replace(workspace="/mnt/a/fusefs/w", context="/mnt/a/fusefs/c"), host))

    assert position(told, "--tmpfs", "/mnt/a/fusefs") < position(told, "--tmpfs", "/mnt/a")
    assert {option[1] for option in told if option[0] == "--remount-ro"} == {"/", "/dev", "/run", "/mnt/a"}


def test_a_mount_in_the_root_folder_is_left_out() -> None:
    needs = NEEDS._replace(workspace="/fusefs/turns/k/work", context="/fusefs/turns/k/context")

    told = groups(options(needs, HOST._replace(top=TOP | {"fusefs": None}, hidden=["/fusefs"])))

    assert ("--ro-bind", "/fusefs", "/fusefs") not in told
    assert ("--bind", needs.workspace, needs.workspace) in told


@pytest.mark.parametrize("network", [False, True])
def test_the_network_is_there_where_it_is_asked_for(network: bool) -> None:
    told = groups(options(NEEDS._replace(network=network), HOST))

    assert (("--unshare-net",) in told) is not network
    assert (("--ro-bind", "/run/resolved/resolv.conf", "/run/resolved/resolv.conf") in told) is network


def test_every_other_namespace_is_the_calls_own() -> None:
    told = groups(options(NEEDS, HOST))

    for name in ("pid", "ipc", "uts", "cgroup-try"):
        assert (f"--unshare-{name}",) in told
    assert ("--die-with-parent",) in told
    assert ("--setenv", "HOME", WORK) in told
    assert told[-1] == ("--chdir", WORK)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a", Bind("/a", "/a", False)),
        ("/a:/b", Bind("/a", "/b", False)),
        ("/a:/b:rw", Bind("/a", "/b", True)),
        ("/a:rw", Bind("/a", "/a", True)),
        ("/a/../b:ro", Bind("/b", "/b", False)),
    ],
)
def test_a_bind_is_read(text: str, expected: Bind) -> None:
    assert parse_bind(text) == expected


@pytest.mark.parametrize("text", ["", ":", "/a:", "/a:b", "/a:/b:/c", "/a:/b:rx", "/a:/", "/a:/b/../c", "/a://b", "/"])
def test_a_bind_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BindRefused):
        parse_bind(text)


@pytest.mark.parametrize(
    "source", ["/mnt", "/mnt/fusefs", "/mnt/fusefs/turns/other/work", "/var/lib", "/run/fusefs", WORK]
)
def test_a_bind_that_would_show_what_is_hidden_is_refused(source: str) -> None:
    with pytest.raises(BindRefused, match="must not see"):
        options(NEEDS._replace(binds=[Bind(source, "/data", False)]), HOST)


@pytest.mark.parametrize("target", ["/proc", "/dev/shm", "/tmp/x", "/var", WORK, f"{WORK}/x", "/mnt", CONTEXT])
def test_a_bind_over_what_a_call_has_of_its_own_is_refused(target: str) -> None:
    with pytest.raises(BindRefused, match="of their own"):
        options(NEEDS._replace(binds=[Bind("/srv/data", target, False)]), HOST)


def test_binds_lie_above_all_else() -> None:
    binds = [Bind("/srv/a", "/a", False), Bind("/srv/b", "/run/b", True)]

    told = groups(options(NEEDS._replace(binds=binds), HOST))

    assert position(told, "--bind", WORK, WORK) < position(told, "--ro-bind", "/srv/a", "/a")
    assert position(told, "--tmpfs", "/run") < position(told, "--bind", "/srv/b", "/run/b")


def test_root_gives_up_everything_for_good() -> None:
    words = command(PROGRAMS, GIVEN, NEEDS, True, ["INT"], ["ls", "-l"])

    assert words[:5] == ["/b/unshare", "--mount", "--propagation", "private", "--"]
    assert words[words.index("/b/setpriv") :] == [
        "/b/setpriv",
        *("--reuid=1000", "--regid=1001", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs", "--", "ls", "-l"),
    ]


def test_others_need_a_user_namespace_to_mount_in() -> None:
    words = command(PROGRAMS, GIVEN, NEEDS, False, [], ["ls"])

    assert "--map-current-user" in words
    assert not any(word.startswith(("--reuid", "--cap-add")) for word in words)
    assert words[words.index("/b/env") :] == ["/b/env", "/b/setpriv", "--no-new-privs", "--", "ls"]
