"""Docker-form sizes: each text has one meaning, and each size one text."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("17b", 17),
        ("1k", 1_024),
        ("064m", 67_108_864),
        ("64m", 67_108_864),
        ("1536m", 1_610_612_736),
        ("1g", 1_073_741_824),
        ("9223372036854775807", sizes.MOST),
        ("0" * 5000 + "1", 1),
    ],
)
def test_parse(text: str, size: int) -> None:
    assert sizes.parse(text) == size


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("64M", "64m"),
        ("64mb", "64m"),
        ("64MiB", "64m"),
        (" 64 m", "64m"),
        ("64m\n", "64m"),
        ("1.5g", "1536m"),
        ("0.3b", "digits, then an optional b, k, m or g, such as 64m"),
        ("", "digits, then an optional b, k, m or g, such as 64m"),
        ("m", "digits, then an optional b, k, m or g, such as 64m"),
        ("-1m", "digits, then an optional b, k, m or g, such as 64m"),
        ("+1m", "digits, then an optional b, k, m or g, such as 64m"),
        ("1_000", "digits, then an optional b, k, m or g, such as 64m"),
        ("1t", "digits, then an optional b, k, m or g, such as 64m"),
        ("0x10", "digits, then an optional b, k, m or g, such as 64m"),
        ("1e3", "digits, then an optional b, k, m or g, such as 64m"),
        ("٣m", "digits, then an optional b, k, m or g, such as 64m"),
        ("unlimited", "digits, then an optional b, k, m or g, such as 64m"),
        ("9223372036854775808", "at most 9223372036854775807b"),
        ("8589934592g", "at most 9223372036854775807b"),
        ("9" * 5000, "at most 9223372036854775807b"),
    ],
)
def test_what_is_not_a_size_is_refused_with_what_would_be_right(text: str, right: str) -> None:
    with pytest.raises(sizes.NotASize) as refused:
        sizes.parse(text)

    assert refused.value.right == right
    assert str(refused.value).endswith(f"; right: {right}")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0b"),
        (1, "1b"),
        (1_023, "1023b"),
        (1_024, "1k"),
        (1_536, "1536b"),
        (67_108_864, "64m"),
        (67_109_888, "65537k"),
        (1 << 40, "1024g"),
    ],
)
def test_render(size: int, text: str) -> None:
    assert sizes.render(size) == text


def test_render_of_a_negative_size_is_a_bug() -> None:
    with pytest.raises(ValueError, match="0 or more, not -1"):
        sizes.render(-1)


@given(st.integers(0, sizes.MOST) | st.integers(0, 8_589_934_591).map(lambda units: units << 30))
def test_every_size_survives_render_and_parse(size: int) -> None:
    assert sizes.parse(sizes.render(size)) == size


@given(st.integers(0, 1 << 20), st.sampled_from(["", "b", "k", "m", "g"]))
def test_every_text_means_what_its_rendered_form_means(digits: int, unit: str) -> None:
    size = sizes.parse(f"{digits}{unit}")

    assert sizes.parse(sizes.render(size)) == size


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_is_refused(text: str) -> None:
    with suppress(sizes.NotASize):
        assert 0 <= sizes.parse(text) <= sizes.MOST
