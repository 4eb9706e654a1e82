"""The types of file that may leave a turn: what each looks like, and what each must be (CONTRACT, The outbox).

A further type is one entry of KINDS, with one function for what must be so and one for what is only told.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from policy import outbox_warnings

HEAD_BYTES = 1024  # what a rule sees of a file's start, and
TAIL_BYTES = 1024  # of its end, unless its type needs all of it; PDF readers look for %%EOF in the last 1,024 bytes
NEAR_BYTES = 4096  # how far from the start the `<svg` of an SVG may be: declaration, comments and DOCTYPE come first


class Content(NamedTuple):
    """What a rule may look at: `head` and `tail` overlap in a small file; `whole` is there for types that need it."""

    size: int  # bytes
    head: bytes  # the first HEAD_BYTES, or all
    tail: bytes  # the last TAIL_BYTES, or all
    whole: bytes | None


class Kind(NamedTuple):
    """A type of file. `problem` says why a content may not leave, or None; `warnings` what a viewer should know."""

    media_type: str
    needs_all: bool
    problem: Callable[[Content], str | None]
    warnings: Callable[[Content], tuple[str, ...]]


def _whole(content: Content) -> bytes:
    if content.whole is None:
        raise ValueError("this type is judged by all of its content")
    return content.whole


_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _png_problem(content: Content) -> str | None:
    if content.size == 0:
        return "it is empty: a PNG begins with the PNG signature"
    return None if content.head.startswith(_PNG_SIGNATURE) else "it does not begin with the PNG signature"


def _pdf_problem(content: Content) -> str | None:
    if content.size == 0:
        return "it is empty: a PDF begins with %PDF-"
    return None if content.head.startswith(b"%PDF-") else "it does not begin with %PDF-"


def _text_problem(whole: bytes) -> str | None:
    try:
        whole.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8: byte {error.start} is 0x{whole[error.start]:02x}"
    if (at := whole.find(b"\0")) >= 0:
        return f"it is not text: byte {at} is NUL"
    return None


def _csv_problem(content: Content) -> str | None:
    return _text_problem(_whole(content))


# What XML lets come before the first element. Nothing here is tried twice (`*+`), and only NEAR_BYTES are looked at.
_PROLOG = rb"""
    (?: \s++
      | <\?.*?\?>
      | <!--.*?-->
      | <!DOCTYPE (?: [^\[>"']++ | "[^"]*+" | '[^']*+' )*+
            (?: \[ (?: <!--.*?--> | [^\]"'<]++ | "[^"]*+" | '[^']*+' | < )*+ \] \s*+ )?+ >
    )*+
"""
_SVG = re.compile(rb"(?:\xef\xbb\xbf)?+" + _PROLOG + rb"<(?:[^\s<>:/]++:)?+svg[\s/>]", re.DOTALL | re.VERBOSE)
_ENCODING = re.compile(rb"""(?:\xef\xbb\xbf)?+\s*+<\?xml(?=\s)[^>]*?\sencoding\s*+=\s*+["']([A-Za-z0-9._-]{1,40})""")
_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")


def _svg_problem(content: Content) -> str | None:
    whole = _whole(content)
    if not whole:
        return "it is empty: an SVG has <svg near its start"
    start = whole[:NEAR_BYTES]
    # Asked first: of a file in UTF-16 a reader learns more from this than from the byte that is not UTF-8.
    declared = _ENCODING.match(start)
    if declared is not None and (encoding := declared[1].decode()).lower() not in _UTF8:
        return f"it declares the encoding {encoding}: UTF-8 is right"
    if (problem := _text_problem(whole)) is not None:
        return problem
    if _SVG.match(start) is None:
        return "its first element is not <svg (after declaration, comments and DOCTYPE, within 4,096 bytes)"
    return None


def _png_warnings(content: Content) -> tuple[str, ...]:
    return outbox_warnings.png(content.tail)


def _pdf_warnings(content: Content) -> tuple[str, ...]:
    return outbox_warnings.pdf(content.tail)


def _svg_warnings(content: Content) -> tuple[str, ...]:
    return outbox_warnings.svg(_whole(content))


def _csv_warnings(content: Content) -> tuple[str, ...]:
    return outbox_warnings.csv(_whole(content))


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "png": Kind("image/png", False, _png_problem, _png_warnings),
        "svg": Kind("image/svg+xml", True, _svg_problem, _svg_warnings),
        "csv": Kind("text/csv", True, _csv_problem, _csv_warnings),
        "pdf": Kind("application/pdf", False, _pdf_problem, _pdf_warnings),
    }
)
