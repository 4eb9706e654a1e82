"""Paths that are not canonical: a table of them, and a strategy that makes any number. Bytes, as they may come."""

from hypothesis import strategies as st

ODD = [
    b"",
    b"/",
    b"/etc/passwd",
    b"a/",
    b"a//b",
    b"//a",
    b".",
    b"./a",
    b"a/.",
    b"a/./b",
    b"..",
    b"../a",
    b"a/..",
    b"a/../b",
    b"a\\b",
    b"\\",
    b"a/b\\c/d",
    b"a\0b",
    b"\0",
    b"\xff",
    b"a/\xc3\x28/b",
    b"\xed\xa0\x80",  # a surrogate, which UTF-8 has none of
    b"x" * 256,
    b"a/" + b"\xc3\xa4" * 128,
    b"/".join([b"y" * 250] * 17),
    b"/".join([b"y"] * 201),
]

CANONICAL = [
    b"a",
    b"a/b.c",
    b"...",
    b"a/..b/c..",
    b" ",
    b"-rf",
    b"~",
    b"a b/\n/\t",
    "ä/日本/🙂".encode(),
    b"e\xcc\x81",  # as it is written: nothing is composed
    b"*/[x]?",
    b"CON",
    b"x" * 255,
    b"/".join([b"y" * 254] * 16),
]

_plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
_odd_component = st.one_of(
    st.sampled_from([b"", b".", b"..", b"a\\b", b"\\", b"\0", b"x\0y", b"x" * 256, b"\xff\xfe", b"a\x80"]),
    st.binary(min_size=1, max_size=8).filter(lambda raw: not _is_utf8(raw) and b"/" not in raw),
)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeError:
        return False
    return True


@st.composite
def _with_an_odd_component(draw: st.DrawFn) -> bytes:
    parts = [name.encode() for name in draw(st.lists(_plain, max_size=4))]
    parts.insert(draw(st.integers(0, len(parts))), draw(_odd_component))
    return b"/".join(parts)


_too_long = st.lists(st.just("y" * 200), min_size=21, max_size=25).map(lambda parts: "/".join(parts).encode())
odd_paths = st.one_of(st.sampled_from(ODD), _with_an_odd_component(), _too_long)
