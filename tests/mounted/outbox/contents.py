"""Contents of files: right ones of each type, and wrong ones with the words that refuse them."""

import struct
import zlib

MIB = 1 << 20


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff"))
    + _chunk(b"IEND", b"")
)
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>\n'
CSV = b"name,mm\npike,710\nperch,250\n"
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"

RIGHT = {"a.png": PNG, "a.svg": SVG, "a.csv": CSV, "a.pdf": PDF}
TYPES = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv", "pdf": "application/pdf"}

WRONG = {
    "text.png": (b"this is no picture\n", "it does not begin with the PNG signature"),
    "text.pdf": (b"this is no document\n", "it does not begin with %PDF-"),
    "latin.csv": ("name\ngr\u00f6\u00dfe\n".encode("latin-1"), "it is not UTF-8: byte 7 is 0xf6"),
    "nul.csv": (b"a,b\n\0\n", "it is not text: byte 4 is NUL"),
    "page.svg": (b"<html><body>no drawing</body></html>\n", "its first element is not <svg"),
    "nul.svg": (SVG + b"\0", f"it is not text: byte {len(SVG)} is NUL"),
}

POLYGLOT = PNG[:-12] + b"<script>alert(1)</script>" + b"<html>" * 200
BILLION_LAUGHS = (
    b'<?xml version="1.0"?>\n<!DOCTYPE svg [\n<!ENTITY l0 "ha">\n'
    + b"".join(b'<!ENTITY l%d "%s">\n' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 10))
    + b']>\n<svg xmlns="http://www.w3.org/2000/svg"><text>&l9;</text></svg>\n'
)


def long_svg(size: int) -> bytes:
    """A right SVG of that many bytes."""
    end = b"</svg>"
    start = b'<svg xmlns="http://www.w3.org/2000/svg">'
    line = b'<path d="M 1 2 L 3 4"/>\n'
    body = line * ((size - len(start) - len(end)) // len(line))
    return start + body + b" " * (size - len(start) - len(body) - len(end)) + end
