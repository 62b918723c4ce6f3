"""What the array engine asks of an array library, on symbols of the SMT solver z3: one stands for all inputs."""

from __future__ import annotations

from typing import Any

from precsim.kernels.array.bits import Lane

__all__ = ["SignedInteger", "Symbols"]


class SignedInteger:
    """What `integers_to_odd` asks of a source: its dtype, and its bits by `Symbols.view`."""

    dtype = "int64"

    def __init__(self, bits: Any) -> None:
        self.bits = bits


class Symbols:
    """`Ops`, and the part of a `Space` that reads sources, on z3 bit-vectors of a lane's width."""

    def __init__(self, z3: Any, lane: Lane) -> None:
        self.z3, self.lane = z3, lane

    def _value(self, x: Any) -> Any:
        return self.z3.BitVecVal(x, self.lane.bits) if isinstance(x, int) else x

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """See `Ops`."""
        return self.z3.If(condition, self._value(yes), self._value(no))

    def maximum(self, x: Any, least: int) -> Any:
        """See `Ops`."""
        return self.where(x < least, least, x)

    def minimum(self, x: Any, greatest: int) -> Any:
        """See `Ops`."""
        return self.where(x > greatest, greatest, x)

    def as_integer(self, condition: Any) -> Any:
        """See `Ops`."""
        return self.where(condition, 1, 0)

    def power_of_two(self, exponent: Any) -> Any:
        """See `Ops`."""
        return self._value(1) << exponent

    def convert(self, x: Any, dtype: str) -> Any:
        """A condition or a shorter integer as int64; an integer as float64, rounded to nearest even."""
        z3 = self.z3
        if dtype == "float64":
            return z3.fpSignedToFP(z3.RNE(), x, z3.Float64())
        return self.as_integer(x) if z3.is_bool(x) else z3.SignExt(self.lane.bits - x.size(), x)

    def multiply(self, x: Any, factor: float) -> Any:
        """A float64 product, rounded to nearest even."""
        return self.z3.fpMul(self.z3.RNE(), x, self.z3.FPVal(factor, self.z3.Float64()))

    def view(self, x: Any, dtype: str) -> Any:
        """Bits of a float64 or of a source's integer."""
        return x.bits if isinstance(x, SignedInteger) else self.z3.fpToIEEEBV(x)
