"""git, from a clone to a garbage collection."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.mounted.compare import Places, run_in_both, same_tree

FILES = 300
STEADY = {  # the same commits, objects and packs whoever makes them, wherever
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a few hundred files, a link, an executable and some history."""
    repository = tmp_path_factory.mktemp("origin")
    for number in range(FILES):
        file = repository / f"d{number % 17}" / f"file-{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{number} line {line}\n" for line in range(number % 50)))
    (repository / "run.sh").write_text("#!/bin/sh\necho hello\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("d1/file-1.txt")
    git = ["git", "-C", str(repository)]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(git + command, env=os.environ | STEADY, check=True)
    (repository / "run.sh").write_text("#!/bin/sh\necho goodbye\n")
    subprocess.run([*git, "commit", "-q", "-a", "-m", "two"], env=os.environ | STEADY, check=True)
    return repository


def below_git_folder(path: bytes) -> bool:
    """The index holds inode numbers and times, and with them what else is in .git may differ."""
    return b".git" in path.split(b"/")


def git(places: Places, *command: str) -> str:
    return run_in_both(places, "git", "-c", "pack.threads=1", *command, env=STEADY)


def test_clone_commit_and_collect(places: Places, origin: Path) -> None:
    git(places, "clone", "-q", f"file://{origin}", "clone")
    clone = places / "clone"

    assert len(same_tree(clone, below_git_folder)) > FILES
    assert git(clone, "status", "--porcelain") == ""

    for place in clone.both():
        (place / "run.sh").unlink()
        (place / "d1" / "file-1.txt").write_text("changed\n")
        (place / "new.txt").write_text("new\n")
    assert git(clone, "status", "--porcelain").split() == [
        "M",
        "d1/file-1.txt",
        "D",
        "run.sh",
        "??",
        "new.txt",
    ]

    git(clone, "add", "-A")
    git(clone, "commit", "-m", "three")
    git(clone, "checkout", "-q", "HEAD~2")
    git(clone, "checkout", "-q", "main")
    same_tree(clone, below_git_folder)
    git(clone, "gc", "--quiet", "--aggressive", "--prune=now")

    assert git(clone, "fsck", "--full", "--strict") == ""
    assert "in-pack: 3" in git(clone, "count-objects", "-v")
    assert git(clone, "rev-list", "--count", "HEAD").strip() == "3"
    assert git(clone, "status", "--porcelain") == ""


def test_worktree_stash_and_rebase(places: Places, origin: Path) -> None:
    git(places, "clone", "-q", f"file://{origin}", "clone")
    clone = places / "clone"
    for place in clone.both():
        (place / "run.sh").write_text("stashed\n")
    git(clone, "stash", "-q")
    git(clone, "worktree", "add", "-q", "../side", "HEAD~1")
    git(places / "side", "rebase", "-q", "main")
    git(clone, "stash", "pop", "-q")

    assert git(clone, "status", "--porcelain").split() == ["M", "run.sh"]
    same_tree(places, below_git_folder)
