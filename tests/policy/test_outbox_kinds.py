"""What each type of file must be."""

import pytest

from policy.outbox_kinds import HEAD_BYTES, KINDS, NEAR_BYTES, TAIL_BYTES, Content
from policy.values import FILE_TYPES

MATPLOTLIB = b"""<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"
  "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="4pt" xmlns="http://www.w3.org/2000/svg" version="1.1">
</svg>
"""
ILLUSTRATOR = b"""<?xml version="1.0" encoding="utf-8"?>
<!-- Generator: Adobe Illustrator 15.0.0, SVG Export Plug-In > -->
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd" [
\t<!-- it's a ] here -->
\t<!ENTITY ns_svg "http://www.w3.org/2000/svg>]">
]>
<svg xmlns="&ns_svg;"/>
"""


def problem(extension: str, whole: bytes) -> str | None:
    kind = KINDS[extension]
    content = Content(len(whole), whole[:HEAD_BYTES], whole[-TAIL_BYTES:], whole if kind.needs_all else None)
    return kind.problem(content)


def test_the_types_that_a_configuration_may_list_and_their_media_types() -> None:
    assert FILE_TYPES == ("png", "svg", "csv", "pdf")
    assert [kind.media_type for kind in KINDS.values()] == ["image/png", "image/svg+xml", "text/csv", "application/pdf"]
    assert [kind.needs_all for kind in KINDS.values()] == [False, True, True, False]


@pytest.mark.parametrize(
    ("extension", "whole"),
    [
        ("png", b"\x89PNG\r\n\x1a\n"),
        ("png", b"\x89PNG\r\n\x1a\n" + bytes(5000)),
        ("pdf", b"%PDF-1.7\n"),
        ("csv", b""),
        ("csv", b"a,b\r\n1,2\r\n"),
        ("csv", b"\xef\xbb\xbfgr\xc3\xb6\xc3\x9fe,mm\n"),
        ("csv", b"<html>"),
        ("svg", b"<svg/>"),
        ("svg", b"<svg>"),
        ("svg", b"\xef\xbb\xbf<svg\n>"),
        ("svg", b'\n <!-- a < b --> <?go <svg?> <svg:svg xmlns:svg="http://www.w3.org/2000/svg"/>'),
        ("svg", MATPLOTLIB),
        ("svg", MATPLOTLIB.replace(b"utf-8", b"UTF-8").replace(b"\n", b"\r\n")),
        ("svg", ILLUSTRATOR),
        ("svg", b"<?xml version='1.0' encoding='US-ASCII'?><svg/>"),
        ("svg", b"<!--" + b" " * (NEAR_BYTES - 12) + b"--><svg>"),
    ],
)
def test_right_content(extension: str, whole: bytes) -> None:
    assert problem(extension, whole) is None


NOT_SVG = "its first element is not <svg (after declaration, comments and DOCTYPE, within 4,096 bytes)"


@pytest.mark.parametrize(
    ("extension", "whole", "reason"),
    [
        ("png", b"", "it is empty: a PNG begins with the PNG signature"),
        ("png", b"\x89PNG\r\n\x1a", "it does not begin with the PNG signature"),
        ("png", b"\x89PNG\n\x1a\n\0", "it does not begin with the PNG signature"),
        ("png", b" \x89PNG\r\n\x1a\n", "it does not begin with the PNG signature"),
        ("pdf", b"", "it is empty: a PDF begins with %PDF-"),
        ("pdf", b"\n%PDF-1.7", "it does not begin with %PDF-"),
        ("pdf", b"<html>%PDF-", "it does not begin with %PDF-"),
        ("csv", b"gr\xf6\xdfe", "it is not UTF-8: byte 2 is 0xf6"),
        ("csv", "a,b".encode("utf-16"), "it is not UTF-8: byte 0 is 0xff"),
        ("csv", b"a,b\n\0", "it is not text: byte 4 is NUL"),
        ("csv", b"a\xc3", "it is not UTF-8: byte 1 is 0xc3"),
        ("csv", b"\xc0\xaf", "it is not UTF-8: byte 0 is 0xc0"),  # an overlong form of /
        ("csv", b"\xed\xa0\x80", "it is not UTF-8: byte 0 is 0xed"),  # half of a surrogate pair
        ("csv", b"a" * 100_000 + b"\xff", "it is not UTF-8: byte 100000 is 0xff"),
        ("svg", b"", "it is empty: an SVG has <svg near its start"),
        ("svg", "<svg/>".encode("utf-16"), "it is not UTF-8: byte 0 is 0xff"),
        ("svg", "<svg/>".encode("utf-16-le"), "it is not text: byte 1 is NUL"),
        ("svg", b'<?xml version="1.0" encoding="UTF-16"?><svg/>', "it declares the encoding UTF-16: UTF-8 is right"),
        ("svg", b"<?xml encoding = 'ISO-2022-JP'?><svg/>", "it declares the encoding ISO-2022-JP: UTF-8 is right"),
        ("svg", b"<html><svg/></html>", NOT_SVG),
        ("svg", b"<svgfoo/>", NOT_SVG),
        ("svg", b"<svg", NOT_SVG),
        ("svg", b"<!-- <svg> -->", NOT_SVG),
        ("svg", b"<!-- <svg> ", NOT_SVG),
        ("svg", b"<!DOCTYPE html [ <svg> ", NOT_SVG),
        ("svg", b"<!DOCTYPE html><html><svg>", NOT_SVG),
        ("svg", b"text <svg>", NOT_SVG),
        ("svg", b"<!--" + b" " * NEAR_BYTES + b"--><svg>", NOT_SVG),
        ("svg", b"\x89PNG\r\n\x1a\n<svg>", "it is not UTF-8: byte 0 is 0x89"),
    ],
)
def test_wrong_content(extension: str, whole: bytes, reason: str) -> None:
    assert problem(extension, whole) == reason


def test_a_type_that_needs_all_is_not_judged_by_less() -> None:
    with pytest.raises(ValueError, match="all of its content"):
        KINDS["csv"].problem(Content(3, b"a,b", b"a,b", None))
