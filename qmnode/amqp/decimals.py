"""Decimal numbers of AMQP 1.0 (1.6.13 to 1.6.15) as text: IEEE 754-2008 in binary integer significand encoding.

A finite number is written as such, with all its digits: ``1.50``. Infinities, values that are no number, and encodings
that no number has keep their bits: ``0x7c000000``.
"""

from decimal import Decimal
from typing import Final, NamedTuple

_SIGN: Final = "0x"


class _Form(NamedTuple):
    digits: int
    bias: int
    fraction: int
    """Bits of the significand behind the exponent, where this is not shifted."""
    exponents: int
    """One more than the largest biased exponent."""


_FORMS: Final = {
    4: _Form(7, 101, 23, 3 << 6),
    8: _Form(16, 398, 53, 3 << 8),
    16: _Form(34, 6176, 113, 3 << 12),
}
"""By the number of bytes."""


def to_text(encoded: bytes) -> str:
    """The number, or its bits."""
    form, bits = _FORMS[len(encoded)], 8 * len(encoded)
    number = int.from_bytes(encoded, "big")
    sign, rest = number >> (bits - 1), number & ((1 << (bits - 1)) - 1)
    exponent, significand = rest >> form.fraction, rest & ((1 << form.fraction) - 1)
    if rest >> (bits - 3) == 3:  # the exponent is two bits further on, and a bit of the significand is implied
        low = form.fraction - 2
        exponent = (rest >> low) & ((1 << (bits - 1 - form.fraction)) - 1)
        significand = (1 << form.fraction) | (rest & ((1 << low) - 1))
    if rest >> (bits - 5) == 15 or significand >= 10**form.digits:
        return _SIGN + encoded.hex()
    return str(Decimal((sign, tuple(map(int, str(significand))), exponent - form.bias)))


def from_text(text: str, size: int) -> bytes:
    """The bytes of the number, of which there are ``size``. ValueError if it has none."""
    if text.startswith(_SIGN):
        encoded = bytes.fromhex(text.removeprefix(_SIGN))
        if len(encoded) != size:
            raise ValueError(f"{text!r:.80} has not {size} bytes")
        return encoded
    form, bits = _FORMS[size], 8 * size
    sign, digits, scale = Decimal(text).as_tuple()
    if not isinstance(scale, int) or len(digits) > form.digits or not 0 <= scale + form.bias < form.exponents:
        raise ValueError(f"{text!r:.80} is no decimal number of {bits} bits")
    significand, exponent = int("".join(map(str, digits))), scale + form.bias
    if significand >> form.fraction:
        low = form.fraction - 2
        rest = (3 << (bits - 3)) | (exponent << low) | (significand & ((1 << low) - 1))
    else:
        rest = (exponent << form.fraction) | significand
    return ((sign << (bits - 1)) | rest).to_bytes(size, "big")
