"""Stock taken of a workspace while names in it are moved and removed: in the end the account equals a walk."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from fusefs import backing
from fusefs.accounting import Totals
from fusefs.accounts import Accounts
from fusefs.counting import StillCounting
from fusefs.court import Court
from fusefs.in_hand import InHand
from fusefs.inodes import UNCOUNTED, Inodes
from fusefs.ledger import USED_BYTES, USED_INODES
from fusefs.recovery import measure
from fusefs.table import Table
from fusefs.workspace import Orphans, Shared, Stocktaking, Workspace
from fusefs.workspace.descriptors import Descriptors
from fusefs.workspace.directory import WorkspaceDirectory
from policy.limits import AgentLimits
from policy.refusals import Stale

KIB = 1024
LIMITS = AgentLimits.from_sizes(scratch=1 << 30, user_disk=1 << 29, turn_disk=1 << 28)
FOLDERS, FILES = 12, 8
ROOT = 1 << 62


class Left:
    """A tree that an earlier daemon has left, and a workspace over it."""

    def __init__(self, base: Path) -> None:
        self.work, orphans = base / "work", base / "open"
        self.work.mkdir()
        orphans.mkdir()
        self._table = Table.create()
        self.inodes = Inodes()
        in_hand = InHand(self._table, resumed=False)
        self.shared = Shared(
            self.inodes, Descriptors(4), backing.Reader(1 << 20), self._table, in_hand, set(), 100, Court(os.getpid())
        )
        self.account = Accounts({}).open_turn("key", "agent", "ada", LIMITS)
        self._orphans = orphans
        self._served: list[Workspace] = []

    def workspace(self) -> Workspace:
        """What serves it."""
        flags = os.O_PATH | os.O_DIRECTORY
        work, orphans = os.open(self.work, flags), os.open(self._orphans, flags)
        self._served.append(Workspace("turn", ROOT, work, self.account, Orphans(orphans), self.shared))
        return self._served[-1]

    def close(self) -> None:
        """Let go of what was served."""
        for workspace in self._served:
            workspace.held.bury_known(workspace, at_most=len(self.inodes))
            workspace.close()
        os.close(self._table.descriptor)

    def walked(self) -> Totals:
        """What it holds."""
        top = os.open(self.work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return measure(top)
        finally:
            os.close(top)

    def charged(self) -> Totals:
        """What the account says."""
        return Totals(self.account.used_bytes, self.account.used_inodes)


class Asking:
    """Who asks."""

    uid, gid, pid = os.geteuid(), os.getegid(), os.getpid()


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    one = Left(tmp_path)
    yield one
    one.close()


def fill(top: Path, dice: random.Random) -> list[Path]:
    """Folders in folders, files of all sizes, many of them with more than one name; answers all names."""
    folders: list[Path] = [top]
    names: list[Path] = []
    for number in range(FOLDERS):
        folders.append(dice.choice(folders) / f"folder{number}")
        folders[-1].mkdir()
    for folder in folders:
        for number in range(FILES):
            name = folder / f"file{number}"
            others = [other for other in names if other.is_file()]
            if others and dice.random() < 0.4:
                os.link(dice.choice(others), name)
            elif dice.random() < 0.1:
                name.symlink_to("nowhere")
            else:
                name.write_bytes(bytes(dice.randrange(50 * KIB)))
            names.append(name)
    return [*names, *folders[1:]]


def folder_of(workspace: Workspace, top: Path, path: Path) -> WorkspaceDirectory:
    """The directory node that a path lies in, found as the kernel would: name by name."""
    here = workspace.root
    for part in path.relative_to(top).parts[:-1]:
        there, _ = here.lookup(os.fsencode(part))
        if not isinstance(there, WorkspaceDirectory):
            raise NotADirectoryError
        here = there
    return here


def change(workspace: Workspace, top: Path, names: list[Path], dice: random.Random) -> None:
    """Something that takes no room, done to names that may be gone already."""
    path, other = dice.choice(names), dice.choice(names)
    name, other_name = os.fsencode(path.name), os.fsencode(other.name)
    with suppress(OSError):
        folder = folder_of(workspace, top, path)
        match dice.randrange(6):
            case 0:
                folder.unlink(name)
            case 1:
                folder.rmdir(name)
            case 2:
                folder.rename(name, folder_of(workspace, top, other), other_name, 0)
            case 3:
                folder.rename(name, folder_of(workspace, top, other), other_name, backing.RENAME_EXCHANGE)
            case 4:
                list(folder.entries(0))
            case 5:
                folder.lookup(name)


def finish(stocktaking: Stocktaking) -> bool:
    """Look at the rest, and charge it; whether all could be read."""
    while not stocktaking.is_done:
        stocktaking.look(100)
    return stocktaking.finish()


def begun(workspace: Workspace, lookups: int, *, put_down: bool) -> Stocktaking:
    """Stock is being taken of a workspace."""
    stocktaking = Stocktaking(workspace, lookups, put_down, done=trio.Event())
    stocktaking.begin()
    return stocktaking


def put_down(left: Left, wrong_by: int) -> None:
    """Leave in the ledger what an earlier worker would have, but for its last request."""
    held = left.walked()
    left.account.row[USED_BYTES], left.account.row[USED_INODES] = held.bytes + wrong_by, held.inodes


@pytest.mark.parametrize(
    ("lookups", "known"), [(0, False), (UNCOUNTED, False), (UNCOUNTED, True)], ids=["new session", "resumed", "known"]
)
@pytest.mark.parametrize("seed", range(30))
def test_totals_are_right_whatever_is_moved_and_removed_meanwhile(
    left: Left, seed: int, lookups: int, known: bool
) -> None:
    dice = random.Random(seed)
    names = fill(left.work, dice)
    if known:
        put_down(left, wrong_by=dice.randrange(-5, 5) * KIB)
    workspace = left.workspace()
    stocktaking = begun(workspace, lookups, put_down=known)
    while not stocktaking.is_done:
        for _ in range(dice.randrange(4)):
            change(workspace, left.work, names, dice)
        stocktaking.look(dice.randrange(4))
    finish(stocktaking)
    assert left.charged() == left.walked()


def test_growth_waits_until_all_is_counted(left: Left) -> None:
    (left.work / "file").write_bytes(b"x")
    workspace = left.workspace()
    stocktaking = begun(workspace, 0, put_down=False)
    caller = Asking()
    with pytest.raises(StillCounting) as told:
        workspace.root.mkdir(b"folder", 0o700, caller)
    with pytest.raises(StillCounting):
        left.account.figures()
    assert not told.value.counted.is_set()
    workspace.root.unlink(b"file")
    finish(stocktaking)
    assert told.value.counted.is_set()
    assert left.charged() == (0, 0)
    workspace.root.mkdir(b"folder", 0o700, caller)
    assert left.charged() == left.walked() == (KIB, 1)


def test_what_was_put_down_is_in_force_at_once_and_set_right_in_the_end(left: Left) -> None:
    (left.work / "file").write_bytes(bytes(8 * KIB))
    put_down(left, wrong_by=3 * KIB)
    workspace = left.workspace()
    stocktaking = begun(workspace, UNCOUNTED, put_down=True)
    workspace.root.mkdir(b"folder", 0o700, Asking())
    left.account.bound_bytes = left.account.used_bytes + 4 * KIB
    with pytest.raises(StillCounting):  # it might fit, once all is counted: not refused, and not let pass
        workspace.root.mkdir(b"another", 0o700, Asking())
    finish(stocktaking)
    workspace.root.mkdir(b"another", 0o700, Asking())
    assert left.charged() == left.walked()
    assert left.account.pending_bytes == left.account.user.pending_bytes == left.account.scratch.pending_bytes


def test_an_inode_deep_in_the_tree_is_found_by_its_number_at_once(left: Left) -> None:
    deep = left.work.joinpath(*"abcdef")
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x")
    found: list[int] = []
    left.inodes.on_found(found.append)
    workspace = left.workspace()
    stocktaking = begun(workspace, UNCOUNTED, put_down=False)
    nodeid = (deep / "file").stat().st_ino
    node = left.inodes.live(nodeid)
    assert node.nodeid == nodeid
    assert node.lookups == UNCOUNTED
    assert found[-1] == nodeid
    finish(stocktaking)
    with pytest.raises(Stale):
        left.inodes.live(nodeid + 1_000_000)
    assert left.charged() == left.walked()


def test_what_cannot_be_read_stops_growth_and_nothing_else(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("broken", "sound"):
        (left.work / folder).mkdir()
        (left.work / folder / "file").write_bytes(b"x")
    read = backing.numbered_names

    def fails(directory: int, name: bytes) -> list[backing.Numbered]:
        if name == b"broken":
            raise OSError(errno.EIO, "Input/output error")
        return read(directory, name)

    monkeypatch.setattr(backing, "numbered_names", fails)
    workspace = left.workspace()
    stocktaking = begun(workspace, UNCOUNTED, put_down=False)
    assert not finish(stocktaking)
    sound, _ = workspace.root.lookup(b"sound")
    assert isinstance(sound, WorkspaceDirectory)
    sound.unlink(b"file")
    with pytest.raises(OSError, match="cannot count") as refused:
        sound.mkdir(b"folder", 0o700, Asking())
    assert refused.value.errno == errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        workspace.root.lookup(b"broken")
    monkeypatch.undo()
    assert workspace.root.lookup(b"broken")[0].nodeid == (left.work / "broken").stat().st_ino
    stocktaking.look_again()
    assert finish(stocktaking)
    assert left.charged() == left.walked()
    sound.mkdir(b"folder", 0o700, Asking())
