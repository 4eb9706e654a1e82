"""What whoever shows a file is told of it, and that hostile content is searched in a time that is proportional."""

import pytest

from policy import outbox_warnings
from policy.outbox import MOST_FILE_BYTES, TAIL_BYTES, Content, Outcome, judge

END = b"\0\0\0\0IEND\xaeB`\x82"
CUT_PNG = "does not end with an IEND chunk: cut off, or something follows"
CUT_PDF = "has no %%EOF near its end: cut off, or something follows"
FORMULAS = "has cells that spreadsheets run as formulas"


@pytest.mark.parametrize(
    ("tail", "warnings"),
    [
        (b"\x89PNG\r\n\x1a\n" + END, ()),
        (END + b"<script>alert(1)</script>", ("has more after its IEND chunk",)),
        (END[:-1], (CUT_PNG,)),
        (b"\x89PNG\r\n\x1a\n", (CUT_PNG,)),
        (b"", (CUT_PNG,)),
    ],
)
def test_png(tail: bytes, warnings: tuple[str, ...]) -> None:
    assert outbox_warnings.png(tail) == warnings


@pytest.mark.parametrize(
    ("tail", "warnings"),
    [
        (b"startxref\n9\n%%EOF", ()),
        (b"startxref\n9\n%%EOF\r\n\0\0", ()),
        (b"%%EOF\n1 0 obj\n%%EOF\n", ()),  # written twice, as an editor does
        (b"%%EOF\nPK\x05\x06", ("has more after its %%EOF",)),
        (b"startxref\n9\n%%EO", (CUT_PDF,)),
        (b"", (CUT_PDF,)),
    ],
)
def test_pdf(tail: bytes, warnings: tuple[str, ...]) -> None:
    assert outbox_warnings.pdf(tail) == warnings


@pytest.mark.parametrize(
    "whole",
    [
        b"=1+1",
        b"a,b\n1,=cmd|' /C calc'!A0\n",
        b"a;=1+1",
        b"a\t=1+1",
        b"a\r=1+1",
        b"a,\t=1+1",
        b"\xef\xbb\xbf=1+1",
        b'a,"=HYPERLINK(""http://example.com"")"',
        b'a,""=1+1',
        b"a,@SUM(1)",
        b"a,+1+cmd|'x'!A0",
        b"a,-2+3",
        b"a,-x",
        b"a,-1e",
        b"a,+49 (30) 1234",
        b"-5\n-6\n-7,-8x",
        "a,\uff1d1+1".encode(),
        "a,\uff20SUM".encode(),
    ],
)
def test_csv_with_formulas(whole: bytes) -> None:
    assert outbox_warnings.csv(whole) == (FORMULAS,)


@pytest.mark.parametrize(
    "whole",
    [
        b"",
        b"a,b\n1,2\n",
        b"-5,+3.2e4,-.5,-1E-7,+0,-5%\r\n-1.234,5\n",
        b'"-5","+3.2e4"\n-5 ,+49 30 1234\n',
        b"-inf,-Infinity,-Inf,-\n",
        b"2024-01-02,a=b,c@d.example,1+1,5-3\n",
        b'"red, - clover", =1\n',  # cells that begin with a space are text
        "größe,5=3\n".encode(),
    ],
)
def test_csv_without_formulas(whole: bytes) -> None:
    assert outbox_warnings.csv(whole) == ()


@pytest.mark.parametrize(
    ("body", "warnings"),
    [
        (b"", ()),
        (b'<path d="M0 0L1 1" style="fill:url(#a);stroke:url( \'#b\' )"/><use xlink:href="#c" href = \'#d\'/>', ()),
        (b'<g style="fill:url(&quot;#a&quot;)"/><a href=""/><g style="fill:url()"/>', ()),
        (
            b'<image href="data:image/png;base64,iVBORw0KGgo="/><style>@font-face{src:url(data:font/woff2;x)}</style>',
            (),
        ),
        (b"<text>a description, once = 1, on = 2, position, onset=5</text>", ()),
        (b"<text>&#233;&#39;&#34;&#45;&#xe9;&#10;</text><!-- $\\mathdefault{0}$ \\alpha -->", ()),
        (b"<SCRIPT>", ("contains script",)),
        (b"<s:script xmlns:s='http://www.w3.org/2000/svg'>", ("contains script",)),
        (b'<g onclick="go()">', ("contains event handlers",)),
        (b"<g\nONLOAD = 'go()'>", ("contains event handlers",)),
        (b"<g/onload=alert(1)>", ("contains event handlers",)),
        (b'<g a=">"onload=alert(1)>', ("contains event handlers",)),
        (b"<text>the onset=5</text><g onload=go()>", ("contains event handlers",)),
        (b'<set attributeName="a" to="javascript:go()"/>', ("contains javascript: links",)),
        (b'<a href="javascript:go()">', ("contains javascript: links", "contains external references")),
        (
            b'<a href="j&#97;vascript&#x3A;go()">',
            ("contains external references", "hides letters in escapes"),
        ),
        (b'<set to="&#0000106;avascript:go()"/>', ("hides letters in escapes",)),
        (b"<style>a{b:u\\72l(//example.com)}</style>", ("hides letters in escapes",)),
        (b'<image xlink:href="https://example.com/a.png"/>', ("contains external references",)),
        (b"<image href='//example.com/a.png'/>", ("contains external references",)),
        (b'<image href="a.png"/>', ("contains external references",)),
        (b'<img src="http://example.com"/>', ("contains external references",)),
        (b'<g style="fill:url(http://example.com/#a)"/>', ("contains external references",)),
        (b'<g style="fill:URL(&quot;//example.com&quot;)"/>', ("contains external references",)),
        (b"<style>@import 'http://example.com'</style>", ("contains external references",)),
        (b'<g xml:base="http://example.com/">', ("contains external references",)),
        (b'<use href="data:image/svg+xml,..."/>', ("contains embedded documents",)),
        (b'<a href=" data:text/html,..."/>', ("contains embedded documents",)),
        (b"<foreignObject>", ("contains foreignObject",)),
        (b"<s:foreignobject>", ("contains foreignObject",)),
        (b"<!DOCTYPE svg>", ("contains a DOCTYPE",)),
        (b'<!DOCTYPE svg [<!ENTITY a "b">]>', ("contains a DOCTYPE", "declares entities")),
    ],
)
def test_svg(body: bytes, warnings: tuple[str, ...]) -> None:
    assert outbox_warnings.svg(b'<svg xmlns="http://www.w3.org/2000/svg">' + body + b"</svg>") == warnings


LAUGHS = b"<!DOCTYPE svg [\n<!ENTITY a0 'ha'>\n%b]>\n<svg>&a9;</svg>" % b"".join(
    b"<!ENTITY a%d '%b'>\n" % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 10)
)


def test_a_billion_laughs_are_not_laughed() -> None:
    verdict = judge(b"a.svg", ("svg",), 1, Content(len(LAUGHS), LAUGHS[:TAIL_BYTES], LAUGHS[-TAIL_BYTES:], LAUGHS))

    assert verdict.warnings == ("contains a DOCTYPE", "declares entities")


@pytest.mark.timeout(20)  # all of them need a hundredth of it; one that is quadratic needs hours
@pytest.mark.parametrize(
    "unit",
    [
        *(bytes((byte,)) for byte in b"<>\"'&=on #([/:,-+@\n\t\\"),
        *(
            b"on",
            b" on",
            b" onabc",
            b" onabc=",
            b" onabc= ",
            b"onabc ",
            b"'on",
            b"<a",
            b"<a:",
            b"<a ",
            b"<g>",
            b"<g a=''>",
        ),
        *(b"<script:", b"<!--", b"<?", b"<![CDATA[", b"<!DOCTYPE ", b"<!DOCTYPE a[", b"<!ENTITY ", b"href", b"href="),
        *(b"href ", b"href=#", b"src= #", b"url(", b"url( #", b"url(&quot;", b"data:", b"data:image/", b"&#", b"&#0"),
        *(b"&#x0", b"&#1", b"&#106", b"\\0", b"\\7", b"javascript", b"foreignobject", b"xml:bas", b"@impor"),
        *(
            b",-",
            b",-0",
            b",-0.",
            b",+ ",
            b",-1e",
            b",-1e+",
            b',"',
            b',-"',
            b"\r\n",
            b"-inf,",
            b",-inf%",
            b"0 ",
            b"\xc3\xa9",
        ),
    ],
)
def test_four_mebibytes_of_anything_are_searched(unit: bytes) -> None:
    whole = (unit * (MOST_FILE_BYTES // len(unit)))[: MOST_FILE_BYTES - 16]
    for name, content in (
        (b"a.svg", b"<svg " + whole),
        (b"b.svg", b"<!DOCTYPE a [" + whole),
        (b"c.csv", b"-0" + whole),
    ):
        verdict = judge(
            name, ("svg", "csv"), 1, Content(len(content), content[:TAIL_BYTES], content[-TAIL_BYTES:], content)
        )

        assert verdict.verdict is (Outcome.REFUSED if name == b"b.svg" else Outcome.KEPT)
