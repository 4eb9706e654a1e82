"""What nodeids of contexts mean: the same to every worker, whenever the one before was killed."""

import mmap

import pytest

from fusefs.context.numbers import FIRST, Meaning, Numbers, child_number, file_number, is_of_context, root_number
from fusefs.context.trees import Entry, Kind
from fusefs.tree import fixed_nodeid

A, B = b"a" * 32, b"b" * 32
ROOT = root_number("acme", 1)


def memory(records: int = 20) -> mmap.mmap:
    return mmap.mmap(-1, (records + 1) * 72)


def file_of(digest: bytes) -> Meaning:
    return Meaning(digest, 5, 3, 0, Kind.FILE)


def folder_in(place: int) -> Meaning:
    return Meaning(A, place, 7, ROOT, Kind.FOLDER)


def test_the_next_worker_knows_all_of_them() -> None:
    shared = memory()
    first = Numbers(shared)
    for nodeid, meaning in ((1, file_of(A)), (2, folder_in(ROOT)), (3, folder_in(2))):
        first.put_down(nodeid, meaning)
    first.put_down(1, file_of(B))  # it is there already

    second = Numbers(shared)

    assert len(second) == 3
    assert [second.meaning(nodeid) for nodeid in (1, 2, 3)] == [file_of(A), folder_in(ROOT), folder_in(2)]
    assert second.meaning(4) is None


def test_what_lies_in_a_place_goes_with_it() -> None:
    shared = memory()
    numbers = Numbers(shared)
    numbers.put_down(1, file_of(A))
    numbers.put_down(2, folder_in(ROOT))
    numbers.put_down(3, folder_in(2))
    numbers.put_down(4, folder_in(9)._replace(root=9))

    for each in (Numbers(shared), numbers):
        each.drop_below(ROOT)
        assert [nodeid in each for nodeid in (1, 2, 3, 4)] == [True, False, False, True]
    assert len(Numbers(shared)) == 2


def test_files_go_with_their_content_and_room_is_used_again() -> None:
    shared = memory(3)
    numbers = Numbers(shared)
    for nodeid, digest in ((1, A), (2, B), (3, A)):
        numbers.put_down(nodeid, file_of(digest))
    with pytest.raises(OSError, match="Too many open files in system"):
        numbers.put_down(4, file_of(B))

    numbers.drop_files({A})
    numbers.put_down(4, file_of(B))
    numbers.put_down(5, folder_in(ROOT))

    assert [nodeid for nodeid in range(1, 6) if nodeid in Numbers(shared)] == [2, 4, 5]


def test_the_files_of_a_content_are_found_by_it() -> None:
    numbers = Numbers(memory())
    for nodeid, digest in ((1, A), (2, B), (3, A), (4, A)):
        numbers.put_down(nodeid, file_of(digest))
    numbers.put_down(5, folder_in(ROOT))  # a folder's digest is of another kind

    assert numbers.files_of(A) == [1, 3, 4]
    numbers.drop_files({A})
    assert (numbers.files_of(A), numbers.files_of(B)) == ([], [2])


def test_a_record_that_a_killed_worker_did_not_finish_means_nothing() -> None:
    shared = memory()
    numbers = Numbers(shared)
    numbers.put_down(1, file_of(A))
    shared[72 * 2 : 72 * 2 + 8] = bytes(8)
    shared[:8] = (2).to_bytes(8, "little")  # a place was taken, and its number not put down

    after = Numbers(shared)
    after.put_down(2, file_of(B))

    assert len(after) == 2
    assert len(Numbers(shared)) == 2


def test_numbers_tell_apart_what_is_not_the_same() -> None:
    a = Entry(b"a", Kind.FILE, A, 5, 3)
    files = [a, a._replace(digest=B), a._replace(mtime_ns=4), a._replace(kind=Kind.PROGRAM)]
    folder = Entry(b"a", Kind.FOLDER, A, 0, 0)
    children = [(1, folder), (2, folder), (1, folder._replace(name=b"b")), (1, folder._replace(digest=B))]
    roots = [("acme", 0), ("acme", 1), ("acme 1", 0), ("1 acme", 0)]

    numbers = [
        *(file_number(org, entry) for org in (root_number("acme", 0), root_number("beta", 0)) for entry in files),
        *(child_number(place, entry) for place, entry in children),
        *(root_number(org, generation) for org, generation in roots),
    ]

    assert len({*numbers}) == len(numbers)
    assert all(is_of_context(number) and FIRST <= number < 1 << 63 for number in numbers)
    assert file_number(7, a._replace(name=b"b")) == file_number(7, a)
    assert not is_of_context(fixed_nodeid(7))
