"""By names and handles of files: paths, links, guessed keys, kept descriptors."""

import ctypes
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.mounted.calling import begin, end, environment, shell, words
from tests.mounted.privacy.neighbours import SECRET, Two


def test_the_secret_is_there(two: Two) -> None:
    """What the tests below fail to reach can be reached: by its own turn."""
    assert SECRET in shell(two.daemon, two.other["turn"], f"cat {two.secret}")


def test_by_path(two: Two) -> None:
    assert "No such file" in two.shell(f"cat {two.secret}")


def test_by_way_of_its_own_workspace(two: Two) -> None:
    key = two.other["key"]

    assert "No such file" in two.shell(f'cat "$TMPDIR/../../{key}/$(basename "$TMPDIR")/secret"')
    assert two.shell('ls "$TMPDIR/.." "$TMPDIR/../.."').split().count(two.mine["key"]) == 1
    assert key not in two.shell('ls "$TMPDIR/../.."')


def test_by_a_symbolic_link(two: Two) -> None:
    assert "No such file" in two.shell(f"ln -s {two.secret} link; cat link; rm link")


def test_by_the_state_directory(two: Two) -> None:
    backing = two.daemon.state / "turns" / two.other["key"] / "work" / "secret"

    assert SECRET in backing.read_text()
    assert "No such file" in two.shell(f"cat {backing}")
    assert "No such file" in two.shell(f"ls {two.daemon.state}")


def test_by_a_walk_over_all_that_it_sees(two: Two) -> None:
    """Nothing that can be found from / has the other's key in its name, or lies on its mount but the turn itself."""
    found = two.python(
        f"""
        import os
        own = os.lstat(os.environ["TMPDIR"]).st_dev
        mine = ({two.mine["workspace"]!r}, {two.mine["context"]!r}, "/tmp", "/var/tmp")
        for folder, folders, files in os.walk("/"):
            if folder.startswith(("/proc", "/sys", *mine)) or folder.count("/") > 4:
                folders.clear()
            for name in folders + files:
                path = os.path.join(folder, name)
                if {two.other["key"]!r} in path:
                    print("found", path)
                try:
                    if os.lstat(path).st_dev == own and not path.startswith(mine):
                        print("mounted", path)
                except OSError:
                    pass
        print("walked")
        """
    )

    assert found == "walked\n"


def test_by_a_hard_link_or_a_rename(two: Two) -> None:
    secret = str(two.secret)
    program = f"""
        import os
        for change in (os.link, os.rename):
            for there in ({secret!r}, {secret!r} + "x"):
                for path in ((there, "here"), ("here", there)):
                    try:
                        open("here", "a").close()
                        change(*path)
                        print("reached")
                    except OSError as error:
                        print(error.strerror)
    """

    assert set(two.python(program).splitlines()) <= {"No such file or directory", "File exists"}


@pytest.mark.parametrize(
    "attempt",
    [
        "os.read(os.open('secret', os.O_RDONLY, dir_fd=0), 99)",
        "os.listdir(0)",
        "os.stat('..', dir_fd=0)",
        "os.fchdir(0)",
    ],
)
def test_by_a_descriptor_kept_from_a_turn_that_ended(two: Two, attempt: str) -> None:
    """A caller may hand one over as standard input; once its turn has ended, it shows nothing."""
    ended = begin(two.daemon, owner=two.owner)
    Path(ended["workspace"], "secret").write_text(SECRET)
    kept = os.open(ended["workspace"], os.O_RDONLY | os.O_DIRECTORY)
    try:
        end(two.daemon, ended)
        command = words(two.mine["turn"], "python3", "-c", f"import os; print({attempt}); print(os.listdir('.'))")
        done = subprocess.run(command, env=environment(two.daemon), stdin=kept, capture_output=True, text=True)
    finally:
        os.close(kept)

    assert done.returncode == 1
    assert "Stale file handle" in done.stderr


def test_by_guessing_keys(two: Two) -> None:
    """A key has 122 random bits; and the right one does not help either, since only the own turn is there."""
    guesses = [
        two.other["key"],
        "roomy-" + "0" * 32,
        two.other["turn"],
        *(f"roomy-{uuid.uuid4().hex}" for _ in range(20)),
    ]
    line = "; ".join(f"ls {two.daemon.mountpoint}/turns/{guess}/work" for guess in guesses)

    assert two.shell(line).count("No such file") == len(guesses)
    assert uuid.UUID(two.other["key"].removeprefix("roomy-")).version == 4


def test_by_the_status_tree(two: Two) -> None:
    for place in ("status", "status/usage.json", f"status/turns/{two.other['key']}.json", "context"):
        assert "No such file" in two.shell(f"cat {two.daemon.mountpoint}/{place}")


def test_by_a_file_handle(two: Two) -> None:
    """open_by_handle_at(2) with the handle of the secret itself, as name_to_handle_at(2) told it outside."""
    program = """
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        handle = ctypes.create_string_buffer(bytes.fromhex({handle!r}))
        mount = os.open(os.environ["TMPDIR"], os.O_RDONLY)
        found = libc.open_by_handle_at(mount, handle, os.O_RDONLY)
        print(os.read(found, 99) if found >= 0 else os.strerror(ctypes.get_errno()))
    """

    assert two.python(program.replace("{handle!r}", repr(handle_of(two.secret)))) == "Operation not permitted\n"


def handle_of(path: Path) -> str:
    """struct file_handle of a path, in hexadecimal digits."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    mount = ctypes.c_int()
    assert libc.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0) == 0, ctypes.get_errno()
    size = int.from_bytes(handle.raw[:4], "little")
    return handle.raw[: 8 + size].hex()
