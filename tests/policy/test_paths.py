"""The one check of paths."""

import pytest
from hypothesis import given

from policy.paths import check_component, check_link, check_path
from policy.refusals import NotCanonical
from tests.policy.odd_paths import CANONICAL, ODD, odd_paths


@pytest.mark.parametrize("path", ODD)
def test_what_is_not_canonical_is_refused(path: bytes) -> None:
    with pytest.raises(NotCanonical):
        check_path(path)


@pytest.mark.parametrize("path", CANONICAL)
def test_what_is_canonical_is_taken_as_it_is(path: bytes) -> None:
    assert check_path(path).encode() == path
    assert check_path(path.decode()).encode() == path


@given(odd_paths)
def test_bytes_and_text_are_refused_alike(path: bytes) -> None:
    with pytest.raises(NotCanonical) as as_bytes:
        check_path(path)
    with pytest.raises(NotCanonical) as as_text:
        check_path(path.decode(errors="surrogateescape"))

    assert str(as_bytes.value) == str(as_text.value)


@pytest.mark.parametrize("name", [b"a/b", *(path for path in ODD if b"/" not in path)])
def test_a_component_is_one(name: bytes) -> None:
    with pytest.raises(NotCanonical):
        check_component(name)


@pytest.mark.parametrize(
    ("target", "depth", "climbs"),
    [(b"a", 0, 0), (b"a/b", 0, 0), (b"..", 1, 1), (b"../a", 1, 1), (b"../../a/b", 2, 2), (b"../../a", 5, 2)],
)
def test_a_link_stays_in_the_tree(target: bytes, depth: int, climbs: int) -> None:
    assert check_link(target, depth) == climbs


@pytest.mark.parametrize(
    ("target", "depth"),
    [
        (b"", 9),
        (b"/a", 9),
        (b"..", 0),
        (b"../a", 0),
        (b"../../a", 1),
        (b"a/..", 9),
        (b"a/../b", 9),
        (b"../a/../..", 9),
        (b"../", 9),
        (b"a/", 9),
        (b"./a", 9),
        (b"..//a", 9),
        (b"a\\b", 9),
        (b"\xff", 9),
        (b"../" * 1400 + b"a", 9999),
    ],
)
def test_a_link_that_may_leave_the_tree_is_refused(target: bytes, depth: int) -> None:
    with pytest.raises(NotCanonical):
        check_link(target, depth)
