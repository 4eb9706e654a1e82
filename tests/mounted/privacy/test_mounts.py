"""By what is mounted: by the host, earlier or later, and by the call itself."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.mounted.calling import begin, run, running
from tests.mounted.harness import prepared_daemon
from tests.mounted.privacy.neighbours import SECRET, Two


def test_by_what_the_host_mounts_later(two: Two) -> None:
    """A bind of the other's workspace, made on the host while my call runs, does not appear in it."""
    if os.geteuid() != 0:
        assert "Operation not permitted" in two.shell("unshare -m true 2>&1 || echo Operation not permitted")
        return
    place = Path(tempfile.mkdtemp(prefix="shared-", dir="/srv"))
    place.chmod(0o755)
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        subprocess.run(["mount", "--make-shared", place], check=True)
        (place / "job").mkdir()
        line = f"echo ready; read go; ls -a {place}/job; cat {place}/job/secret"
        with running(two.daemon, two.mine["turn"], "sh", "-c", line) as process:
            subprocess.run(["mount", "--bind", two.other["workspace"], place / "job"], check=True)
            assert SECRET in (place / "job" / "secret").read_text()
            out, errors = process.communicate("go\n", timeout=20)

        assert SECRET not in out
        assert "No such file" in errors
    finally:
        subprocess.run(["umount", "-l", place / "job"], check=False)
        subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(place)


def test_by_a_bind_that_the_host_has_already(two: Two) -> None:
    """Where a platform has bound a workspace by itself, calls do not see it there."""
    if os.geteuid() != 0:
        assert str(two.secret) not in two.shell("cat /proc/self/mountinfo")
        return
    place = Path(tempfile.mkdtemp(prefix="job-", dir="/srv"))
    place.chmod(0o755)
    subprocess.run(["mount", "--bind", two.other["workspace"], place], check=True)
    try:
        assert "No such file" in two.shell(f"cat {place}/secret")
        assert two.shell(f"ls -a {place}").split() == [".", ".."]
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def test_by_taking_the_masks_away(two: Two) -> None:
    """Nor from a user namespace of its own, in which a call may have every capability."""
    masked = str(two.daemon.base.parent)
    for line in (
        f"umount {masked}; umount -l {two.daemon.mountpoint}",
        f"unshare -Urm sh -c 'umount {masked}; umount -l {masked}; umount -l /run; umount /dev/shm; umount -R /'",
        f"unshare -Urm sh -c 'mkdir /tmp/r; mount --bind {masked} /tmp/r; ls -R /tmp/r'",
        "unshare -Urm sh -c 'mkdir /tmp/s; mount --rbind / /tmp/s; ls -R /tmp/s/var/tmp'",
        "unshare -Urm sh -c 'mount --move /var/tmp /tmp; ls /var/tmp'",
    ):
        told = two.shell(f"{line}; cat {two.secret}")
        assert two.other["key"] not in told.replace(str(two.secret), ""), line
        assert "No such file" in told


@pytest.mark.needs_root
def test_a_daemon_among_the_hosts_folders_is_masked() -> None:
    """The shared daemon lies in /var/tmp, which calls have of their own; this one lies where the host shows."""
    with prepared_daemon(parent="/srv") as daemon:
        daemon.start()
        mine, other = begin(daemon, owner=(0, 0)), begin(daemon, owner=(0, 0))
        Path(other["workspace"], "secret").write_text(SECRET)
        line = f"cat {other['workspace']}/secret; ls -RA {daemon.base}; ls -A {daemon.state}"

        done = run(daemon, mine["turn"], "sh", "-c", f"{line}; df -B1 --output=size . | tail -1")

        assert SECRET not in done.stdout
        assert other["key"] not in done.stdout
        assert "control.sock" not in done.stdout
        assert mine["key"] in done.stdout
        assert done.stdout.split()[-1] == str(2 << 30)
