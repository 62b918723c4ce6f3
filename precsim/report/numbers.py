"""Numbers for people."""

from precsim.wording import count, counted, percent, power, power_range, printable

__all__ = ["count", "counted", "percent", "power", "power_range", "printable"]
