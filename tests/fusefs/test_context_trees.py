"""The objects of folders: made, found in, and checked as whoever wishes ill might send them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.context import trees
from fusefs.context.trees import Below, Entry, Kind, Tree
from policy.refusals import Incomplete, NotATree, NotCanonical

A, B = b"a" * 32, b"b" * 32
SIZES = {A: 5, B: 7}
EMPTY = trees.make([], lambda _: pytest.fail("nothing is below"))


def entry(name: bytes, digest: bytes = A, kind: Kind = Kind.FILE) -> Entry:
    return Entry(name, kind, digest, SIZES[digest], 3)


def below(digest: bytes) -> Below:
    if digest != trees.digest_of(EMPTY):
        raise Incomplete(digest.hex())
    return Tree(EMPTY).below


def folder(name: bytes) -> Entry:
    return Entry(name, Kind.FOLDER, trees.digest_of(EMPTY), 0, 0)


def check(data: bytes) -> Tree:
    return trees.check(data, SIZES.get, below)


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1, max_size=20)
folders = st.dictionaries(
    names.filter(lambda name: name not in (".", "..")).map(str.encode), st.sampled_from([A, B, None]), max_size=30
)


@given(folders, names)
def test_what_is_made_is_right_and_every_name_is_found(files: dict[bytes, bytes | None], other: str) -> None:
    entries = [folder(name) if digest is None else entry(name, digest) for name, digest in files.items()]

    tree = check(trees.make(entries, below))

    assert list(tree) == sorted(entries)
    assert all(tree[tree.find(name) or 0].name == name for name in files)
    assert (tree.find(other.encode()) is None) == (other.encode() not in files)
    assert tree.first_after(other.encode()) == sum(name <= other.encode() for name in files)
    assert tree.below.files == sum(digest is not None for digest in files.values())
    assert tree.below.bytes == sum(SIZES[digest] for digest in files.values() if digest)
    assert tree.below.folders == tree.below.folders_here == sum(digest is None for digest in files.values())


@given(folders, st.data())
def test_whatever_is_changed_is_noticed(files: dict[bytes, bytes | None], data: st.DataObject) -> None:
    entries = [folder(name) if digest is None else entry(name, digest) for name, digest in files.items()]
    good = trees.make(entries, below)
    at = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[at] ^= data.draw(st.integers(1, 255))

    try:
        tree = check(bytes(changed))
    except (NotATree, NotCanonical, Incomplete):
        return
    assert trees.make(list(tree), below) == bytes(changed)  # another folder, spelt as it is due


def test_links_are_summed_up_to_where_they_lead() -> None:
    up = trees.link(b"up", b"../../x", 0)
    tree = check(trees.make([up, trees.link(b"here", b"x", 0)], below))
    assert tree.below.climbs == 2

    def deep(_: bytes) -> Below:
        return tree.below

    above = Tree(trees.make([Entry(b"d", Kind.FOLDER, A, 0, 0)], deep))
    assert (above.below.climbs, above.below.longest, above.below.height) == (1, len(b"d/here"), 2)


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(Incomplete, match=(b"c" * 32).hex()):
        check(trees.make([Entry(b"x", Kind.FILE, b"c" * 32, 1, 0)], below))
    with pytest.raises(Incomplete):
        check(trees.make([Entry(b"x", Kind.FOLDER, A, 0, 0)], lambda _: Tree(EMPTY).below))


@pytest.mark.parametrize(
    "entries",
    [
        [entry(b"a")._replace(number=6)],
        [folder(b"a")._replace(number=1)],
        [folder(b"a")._replace(mtime_ns=1)],
        [entry(b"a"), entry(b"a")],
        [trees.link(b"l", b"x", 0)._replace(digest=A)],
    ],
)
def test_entries_that_are_not_so_are_refused(entries: list[Entry]) -> None:
    with pytest.raises(NotATree):
        check(trees.make(entries, below))


@pytest.mark.parametrize("data", [b"", b"fusefst1", EMPTY[:-1], EMPTY + b"x", struct.pack("<60s", b"another")])
def test_what_is_no_folder_is_refused(data: bytes) -> None:
    with pytest.raises(NotATree):
        check(data)
