"""The account of one cast, and the numbers that people type."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import precsim as ps
from precsim.number.explain import parse_real
from precsim.number.reference import encode


def test_a_tie_from_both_sides():
    for value, code, low, high in [(2049, 0x6800, 2048, 2050), (2051, 0x6802, 2050, 2052)]:
        account = ps.explain(value, ps.FP16)
        assert (account.code, account.lower, account.upper) == (code, low, high)
        assert account.position == Fraction(1, 2)
        assert account.is_tie
        assert "exactly half of the way" in str(account)
        assert "a tie: it goes to the neighbour whose code is even" in account.reason


def test_the_whole_account():
    assert str(ps.explain("0.1", "e4m3")).splitlines() == [
        "1/10 to e4m3, nearest-even, overflow infinity",
        "  result     0.1015625",
        "  code       0x1d  (0 0011 101)",
        "  neighbours 0.09375 and 0.1015625",
        "  position   4/5 of the way from the lower to the upper",
        "  why        the upper neighbour is nearer",
        "  error      0.0015625, 0.0156 of it",
    ]


def test_text_is_exact_and_a_float_is_what_it_is():
    """The float64 beside a tenth is not a tenth."""
    assert ps.explain("0.1", ps.E4M3).position == Fraction(4, 5)
    assert ps.explain(0.1, ps.E4M3).position == (Fraction(0.1) - Fraction("0.09375")) / Fraction("0.0078125")
    assert ps.explain(0.1, ps.E4M3).position != Fraction(4, 5)


@pytest.mark.parametrize(
    ("value", "fmt", "options", "result", "reason"),
    [
        (1.5, ps.FP16, {}, 1.5, "a value of the format: nothing to round"),
        (math.nan, ps.FP16, {}, math.nan, "the source is NaN"),
        (math.inf, ps.E4M3, {"overflow": "saturate"}, 448, "the source is infinite and overflow is saturate"),
        (
            1e6,
            ps.FP16,
            {},
            math.inf,
            "rounds beyond the greatest finite value 65504.0: it overflows (infinity)",
        ),
        (
            1e6,
            ps.E4M3,
            {"profile": "torch>=2.12"},
            448,
            "beyond the greatest finite value 448.0, where this rule ends",
        ),
        (-1e6, ps.E4M3, {"profile": "ocp-saturate"}, -448, "where this rule ends at it"),
        (-1.0, ps.E8M0, {}, math.nan, "e8m0 has no sign: negative numbers become nan (nan)"),
        (0.0, ps.E8M0, {"profile": "torch"}, 2.0**-127, "e8m0 has no zero (magnitude)"),
        (0.0, ps.FP16, {}, 0.0, "the source is zero"),
        (1.3, ps.E2M1, {"rounding": "to-odd"}, 1.5, "whose code is odd, the upper one"),
        (1.3, ps.E2M1, {"rounding": "down"}, 1.0, "mode down chooses the lower neighbour"),
        (-1.3, ps.E2M1, {"rounding": "down"}, -1.5, "mode down chooses the lower neighbour"),
        (
            -1.25,
            ps.E2M1,
            {"rounding": "nearest-zero"},
            -1.0,
            "a tie: it goes to the neighbour nearer to zero, the upper",
        ),
        (
            1.25,
            ps.E2M1,
            {"rounding": "nearest-away"},
            1.5,
            "a tie: it goes to the neighbour away from zero, the upper",
        ),
        (
            1.25,
            ps.E2M1,
            {"rounding": "stochastic", "random": 1 << 31},
            1.5,
            "mode stochastic chooses the upper",
        ),
        (2.0**-30, ps.FP16, {}, 0.0, "the lower neighbour is nearer"),
    ],
)
def test_reasons(value, fmt, options, result, reason):
    account = ps.explain(value, fmt, **options)
    assert account.result == result or (math.isnan(account.result) and math.isnan(result))
    assert reason in account.reason
    assert reason in str(account)


@pytest.mark.parametrize(
    ("value", "fmt", "bits"),
    [
        (-1.5, ps.FP16, "1 01111 1000000000"),
        (1.0, ps.E8M0, "01111111"),
        (-3, ps.INT8, "11111101"),
        (1.0, ps.NAMED_FORMATS["binary8p1"], "0 1000000"),
        (1.0, "float8_e5m3fnu", "01111 000"),
    ],
    ids=str,
)
def test_bits_are_split_into_their_fields(value, fmt, bits):
    assert ps.explain(value, fmt).bits == bits


def test_every_number_near_a_format_s_values_gets_an_account():
    for value in ps.E2M1.values():
        for number in (value, Fraction(value) + Fraction(1, 10**9), Fraction(value) - Fraction(1, 10**9)):
            account = ps.explain(number, ps.E2M1)
            assert account.code == encode(number, ps.E2M1)
            assert account.lower is None or account.lower <= number <= account.upper
            assert str(account)


def test_a_profile_s_first_rounding_is_accounted_for():
    """Public report D01: torch casts float64 to FP16 by way of float32."""
    value = 1.5 + 2**-11 + 2**-30
    account = ps.explain(value, ps.FP16, profile="torch")
    assert account.code == ps.encode(value, ps.FP16, profile="torch") == 0x3E00
    assert (account.first, account.value) == (1.5 + 2**-11, value)
    assert account.is_tie
    assert "first      rounded to 1.50048828125, as this profile has it" in str(account)
    once = ps.explain(value, ps.FP16, profile="numpy")
    assert (once.code, once.first) == (0x3E01, None)
    assert "first" not in str(once)
    for unchanged in (1.5, math.nan, -0.0):
        assert "first" not in str(ps.explain(unchanged, ps.FP16, profile="torch"))
    assert "rounded to inf" in str(ps.explain(1e300, ps.E4M3, profile="torch"))


def test_what_explain_refuses():
    with pytest.raises(ps.InputError, match="profile= and a Rounding both state the whole rule"):
        ps.explain(1, ps.E2M1, ps.Rounding(), profile="ml_dtypes")
    with pytest.raises(ps.InputError, match="format e2m1 has no NaN"):
        ps.explain("nan", ps.E2M1)
    with pytest.raises(ps.InputError, match="unknown profile"):
        ps.explain(1, ps.E2M1, profile="nope")
    with pytest.raises(ps.InputError, match="needs random in"):
        ps.explain(1.3, ps.E2M1, "stochastic")


# ---- numbers as text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ("-3e-5", Fraction(-3, 100_000)),
        (" 1E3 ", 1000),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1/3", Fraction(1, 3)),
        ("-2 / 6", Fraction(-1, 3)),
        ("2^-25", Fraction(1, 2**25)),
        ("-2^3", -8),
        ("2**10", 1024),
        ("1.5*2^127", Fraction(3, 2) * 2**127),
        ("3·2^-2", Fraction(3, 4)),
        ("−1.25", Fraction(-5, 4)),
        ("0x1.8p-3", Fraction(3, 16)),
        ("-0x10", -16),
        ("1e400", 10**400),
        ("1e-5*2^3", Fraction(8, 100_000)),
        ("0x1.30ff0e8744000p+53", int(float.fromhex("0x1.30ff0e8744000p+53"))),
        ("0x1.00000000000000000001", 1 + Fraction(1, 16**20)),
        ("-0x.8", Fraction(-1, 2)),
    ],
)
def test_numbers_as_people_write_them(text, value):
    assert parse_real(text) == value


@pytest.mark.parametrize(
    ("text", "bits"),
    [("-0", "-0x0.0p+0"), ("-0.0", "-0x0.0p+0"), ("inf", "inf"), ("-Infinity", "-inf"), ("nan", "nan")],
)
def test_what_only_floats_can_be(text, bits):
    assert isinstance(parse_real(text), float)
    assert parse_real(text).hex() == bits


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "1/0",
        "0x",
        "1e",
        "--1",
        "0x.",
        "1..2*2^3",
        "1e9999*2^3",
        "0x1p9999",
        "2^",
        "1..2",
        "1e99999",
        "2^99999",
        "__import__('os')",
        "1+1",
        "1" * 6000,
        "٣^x",
    ],
)
def test_what_is_no_number(text):
    with pytest.raises(ps.InputError, match="is not a number: give one like") as caught:
        parse_real(text)
    assert "\n" not in str(caught.value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_s_text_is_read_back(value):
    assert float(parse_real(repr(value))) == value
    assert parse_real(value.hex()) == value


@given(st.text(max_size=30) | st.text("0123456789abcdefpx.+-*^/ ·einf", max_size=12))
def test_any_text_is_a_number_or_refused(text):
    with suppress(ps.InputError):
        parse_real(text)


@pytest.mark.parametrize(
    "text", ["1e4000", "-1e4000", "1e-4000", "-1e-4000", "2^-1074", "2^1024", "inf", "-nan", "-0", "1/3"]
)
@pytest.mark.parametrize("profile", [None, "ptx-satfinite", "onnx-cast-24", "torch"])
def test_an_account_of_any_size_prints(text, profile):
    for fmt in ps.NAMED_FORMATS.values():
        if profile is not None and fmt not in ps.PROFILES[profile].formats:
            continue
        with suppress(ps.InputError):
            assert "why" in str(ps.explain(text, fmt, profile=profile))


@pytest.mark.parametrize(
    ("value", "fmt", "lines"),
    [
        (
            1.5 + 2**-11 + 2**-40,
            ps.FP16,
            ["position   1/2 + 9.31e-10 of the way", "the upper neighbour is nearer"],
        ),
        (
            1.5 + 2**-11 - 2**-40,
            ps.FP16,
            ["position   1/2 − 9.31e-10 of the way", "the lower neighbour is nearer"],
        ),
        (
            "-1e-4000",
            ps.FP16,
            ["about -2^-13288 to fp16", "position   1 − about 2^-13264", "error      about 2^-13288"],
        ),
        ("2^-1074", ps.FP16, ["5e-324 = 2^-1074 to fp16", "position   8.28904606e-317 of the way"]),
        ("2^-1074", ps.FP64, ["result     5e-324 = 2^-1074", "nothing to round", "error      none"]),
        ("1e4000", ps.E4M3, ["about 2^13287 to e4m3", "it overflows (infinity)"]),
        ("2^1024", ps.FP64, ["2^1024 to fp64", "result     inf"]),
    ],
    ids=str,
)
def test_what_is_next_to_a_mark_is_not_shown_as_the_mark(value, fmt, lines):
    account = str(ps.explain(value, fmt))
    for line in lines:
        assert line in account
