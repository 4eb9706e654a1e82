"""What whoever shows a file should know of it: nothing here refuses (CONTRACT, The outbox).

Searches, not parsers: they run over hostile content of 4 MiB, so each takes time in proportion to its length,
expands no entity and recurses nowhere. They would rather tell too much than too little, and are no sanitiser:
docs/outbox.md says how to show an SVG safely.
"""

import re

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
    cells = b"\n" + whole.removeprefix(b"\xef\xbb\xbf").translate(_CELLS, b'"')
    signed = b"\n-" in cells or b"\n+" in cells
    if any(formula in cells for formula in _FORMULAS) or (signed and _SIGNED.search(cells)):
        return ("has cells that spreadsheets run as formulas",)
    return ()


# These are looked for in small letters, since HTML, in which an SVG may be put, does not tell them from capitals.
_SCRIPT = re.compile(rb"<(?:[^\s<>/:]*+:)?+script")
_FOREIGN = re.compile(rb"<(?:[^\s<>/:]*+:)?+foreignobject")
# To nowhere, to a part of the file itself and to what is in the reference are none.
_REFERENCES = tuple(
    (word, re.compile(word + follows + rb"""\s*+(?:["']|&quot;|&apos;|&#3[49];)?+\s*+(?![#"'>)]|data:)"""))
    for word, follows in ((b"href", rb"\s*+="), (b"src", rb"\s*+="), (b"url", rb"\("))
)
_DOCUMENT = re.compile(rb"data:(?!image/(?!svg)|font/|application/(?:x-)?font)")
# The two letters come first in the pattern, since a search for letters is fast; then what must be before them.
_HANDLER = re.compile(rb"""on(?<=[\s"'/]on)[a-z]{3,}+\s*+=(?:\s*+["']|([^<>]*+))""")
# A letter, or one of `(:@`, written as a number, as in `javascript&#58;` or in a style sheet's `u\72l(`. Programs
# write others so: quotes, dashes, newlines.
_HIDDEN = (
    re.compile(rb"&#x0*+(?:28|3a|[46][0-9a-f]|[57][0-9a])(?![0-9a-f])"),
    re.compile(rb"&#0*+(?:40|58|6[4-9]|[78][0-9]|90|9[6-9]|1[01][0-9]|12[0-2])(?![0-9])"),
    re.compile(rb"\\0{0,4}(?:28|3a|[46][0-9a-f]|[57][0-9a])(?![0-9a-f])"),
)


def _has_handler(text: bytes) -> bool:
    """Whether there is an attribute such as `onload=`, not only words such as `onset=5`, which a `<` follows."""
    found = _HANDLER.finditer(text)
    return any(handler[1] is None or text[handler.end() : handler.end() + 1] == b">" for handler in found)


def _refers_outside(text: bytes) -> bool:
    if b"@import" in text or b"xml:base" in text:
        return True
    return any(word in text and outside.search(text) is not None for word, outside in _REFERENCES)


def svg(whole: bytes) -> tuple[str, ...]:
    """`whole` is UTF-8."""
    text = whole.lower()
    # `in` is several times as fast as a search, and most files have nothing of this.
    found = (
        ("contains script", b"script" in text and _SCRIPT.search(text)),
        ("contains event handlers", _has_handler(text)),
        ("contains javascript: links", b"javascript:" in text),
        ("contains external references", _refers_outside(text)),
        ("contains embedded documents", b"data:" in text and _DOCUMENT.search(text)),
        ("contains foreignObject", b"foreignobject" in text and _FOREIGN.search(text)),
        ("contains a DOCTYPE", b"<!doctype" in text),
        ("declares entities", b"<!entity" in text),
        ("hides letters in escapes", any(hidden.search(text) for hidden in _HIDDEN)),
    )
    return tuple(warning for warning, is_there in found if is_there)
