"""What whoever shows a file should know of it: nothing here refuses (CONTRACT, The outbox).

Searches, not parsers: they run over hostile content of 4 MiB, so each takes time in proportion to its length,
expands no entity and recurses nowhere. They would rather tell too much than too little, and are no sanitiser:
docs/outbox.md says how to show an SVG safely.
"""

import re
from collections.abc import Iterator

WINDOW_BYTES = 128 << 10
OVERLAP_BYTES = 8 << 10


def windows(whole: bytes) -> Iterator[bytes]:
    """Parts of a content that overlap: what is looked for is shorter than that.

    A search keeps Python's other threads waiting, and with them every request to the mount, until it is over.
    """
    for start in range(0, max(1, len(whole) - OVERLAP_BYTES), WINDOW_BYTES - OVERLAP_BYTES):
        yield whole[start : start + WINDOW_BYTES]


_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"  # length 0, type, CRC-32 (ISO/IEC 15948, 11.2.5)


def png(tail: bytes) -> tuple[str, ...]:
    """`tail` is the last bytes of the file."""
    if tail.endswith(_PNG_END):
        return ()
    if _PNG_END in tail:
        return ("has more after its IEND chunk",)
    return ("does not end with an IEND chunk: cut off, or something follows",)


def pdf(tail: bytes) -> tuple[str, ...]:
    """`tail` is the last bytes of the file, 1,024 where there are as many."""
    _, end, after = tail.rpartition(b"%%EOF")
    if not end:
        return ("has no %%EOF near its end: cut off, or something follows",)
    return ("has more after its %%EOF",) if after.strip(b"\0\t\n\f\r ") else ()


# A cell begins at a line's start or after a comma, a semicolon or a tab; quotes do not count. Text in quotes may hold
# commas, but programs do not agree where a quoted text begins, so these begin cells, too.
_CELLS = bytes.maketrans(b",;\t\r123456789", b"\n\n\n\n000000000")
_WIDE = ("\uff1d", "\uff0b", "\uff0d", "\uff20")  # full-width = + - @, which Excel takes for the narrow ones
_FORMULAS = (b"\n=", b"\n@", *(b"\n" + sign.encode() for sign in _WIDE))
# A number is no formula: a sign, digits (all 0 by now) and points, an exponent, a percent sign; some write `-inf`.
_SIGNED = re.compile(rb"\n[+-](?![0. ]*+(?:[eE][+-]?0++|[iI]nf(?:inity)?+)?+%?+ *+(?:\n|\Z))")


def csv(whole: bytes) -> tuple[str, ...]:
    """`whole` is UTF-8."""
    text = b"\n" + whole.removeprefix(b"\xef\xbb\xbf")
    if any(_has_formula(window) for window in windows(text)):
        return ("has cells that spreadsheets run as formulas",)
    return ()


def _has_formula(text: bytes) -> bool:
    cells = text.translate(_CELLS, b'"')
    signed = b"\n-" in cells or b"\n+" in cells
    return any(formula in cells for formula in _FORMULAS) or (signed and _SIGNED.search(cells) is not None)


# These are looked for in small letters, since HTML, in which an SVG may be put, does not tell them from capitals.
_SCRIPT = re.compile(rb"<(?:[^\s<>/:]*+:)?+script")
_FOREIGN = re.compile(rb"<(?:[^\s<>/:]*+:)?+foreignobject")
# To nowhere, to a part of the file itself and to what is in the reference are none.
_REFERENCES = tuple(
    (word, re.compile(word + follows + rb"""\s*+(?:["']|&quot;|&apos;|&#3[49];)?+\s*+(?![#"'>)]|data:)"""))
    for word, follows in ((b"href", rb"\s*+="), (b"src", rb"\s*+="), (b"url", rb"\("))
)
# Other ways to name something outside: HTML's in an SVG, style sheets', and animations of a reference.
_OUTSIDE_WORDS = (b"@import", b"xml:base", b"srcset", b"poster=", b"http-equiv", b"image-set(", b"xml-stylesheet")
_ANIMATED = re.compile(rb"""attributename\s*+=\s*+["']?+(?:[a-z]++:)?+(?:href|src|data|action)""")
_HTML_REFERENCE = re.compile(rb"""[\s"'](?:data|action|formaction|background|cite|ping)\s*+=\s*+["']?+\s*+(?![#"'>])""")
_WORDS_OF_HTML = (b"data", b"action", b"background", b"cite", b"ping")  # each of these references has one
_ELEMENTS_OF_HTML = re.compile(rb"<(?:[^\s<>/:]*+:)?+(?:iframe|object|embed|form|meta|base|portal|frame|applet)[\s/>]")
_DOCUMENT = re.compile(rb"data:(?!image/(?!svg)|font/|application/(?:x-)?font)")
# The two letters come first in the pattern, since a search for letters is fast; then what must be before them.
_HANDLER = re.compile(rb"""on(?<=[\s"'/]on)[a-z]{3,}+\s*+=(?:\s*+["']|([^<>]*+))""")
# A letter, or one of `(:@`, written as a number, as in `javascript&#58;` or in a style sheet's `u\72l(`. Programs
# write others so: quotes, dashes, newlines.
_HIDDEN = (
    re.compile(rb"&#x0*+(?:28|3a|[46][0-9a-f]|[57][0-9a])(?![0-9a-f])"),
    re.compile(rb"&#0*+(?:40|58|6[4-9]|[78][0-9]|90|9[6-9]|1[01][0-9]|12[0-2])(?![0-9])"),
    re.compile(rb"\\0{0,4}(?:28|3a|[46][0-9a-f]|[57][0-9a])(?![0-9a-f])"),
    re.compile(rb"(?:\\u|\\?u\\r|\\?ur\\l)[\\a-z]*+\("),  # url( with a backslash before a letter
)


# What a browser leaves out of the beginning of a link, as it is and as it may be written.
_SPACE = b"\t\n\r"
_WRITTEN_SPACE = re.compile(rb"&#(?:x0*+[9ad]|0*+(?:9|10|13));?+|&(?:tab|newline);")


def _has_handler(text: bytes) -> bool:
    """Whether there is an attribute such as `onload=`, not only words such as `onset=5`, which a `<` follows."""
    found = _HANDLER.finditer(text)
    return any(handler[1] is None or text[handler.end() : handler.end() + 1] == b">" for handler in found)


def _has_script(text: bytes) -> bool:
    """Also what makes one: a style sheet of XSLT, or a document in an attribute."""
    if b"script" in text and (_SCRIPT.search(text) or b"&lt;script" in text):
        return True
    return b"srcdoc" in text or b"xsl/transform" in text or b"text/xsl" in text


def _has_documents(text: bytes) -> bool:
    return (b"data:" in text and _DOCUMENT.search(text) is not None) or _ELEMENTS_OF_HTML.search(text) is not None


def _has_link_to_script(text: bytes) -> bool:
    shown = text.translate(None, _SPACE)
    return b"javascript:" in (_WRITTEN_SPACE.sub(b"", shown) if b"&" in shown else shown)


def _hides_letters(text: bytes) -> bool:
    return (b"&#" in text or b"\\" in text) and any(hidden.search(text) for hidden in _HIDDEN)


def _refers_outside(text: bytes) -> bool:
    if any(word in text for word in _OUTSIDE_WORDS) or _ANIMATED.search(text):
        return True
    if any(word in text for word in _WORDS_OF_HTML) and _HTML_REFERENCE.search(text):
        return True
    return any(word in text and outside.search(text) is not None for word, outside in _REFERENCES)


def svg(whole: bytes) -> tuple[str, ...]:
    """`whole` is UTF-8."""
    found: dict[str, None] = {}
    for window in windows(whole):
        found |= dict.fromkeys(_svg(window))
    return tuple(found)


def _svg(part: bytes) -> tuple[str, ...]:
    text = part.lower()
    # `in` is several times as fast as a search, and most files have nothing of this.
    found = (
        ("contains script", _has_script(text)),
        ("contains event handlers", _has_handler(text)),
        ("contains javascript: links", _has_link_to_script(text)),
        ("contains external references", _refers_outside(text)),
        ("contains embedded documents", _has_documents(text)),
        ("contains foreignObject", b"foreignobject" in text and _FOREIGN.search(text)),
        ("contains a DOCTYPE", b"<!doctype" in text),
        ("declares entities", b"<!entity" in text),
        ("hides letters in escapes", _hides_letters(text)),
    )
    return tuple(warning for warning, is_there in found if is_there)
