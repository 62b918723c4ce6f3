"""`Scaler`: settings that are frozen and a step that is pure."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from precsim.amp.scalers import hazards
from precsim.amp.scalers.float32 import FLOAT32_MAX, to_float32
from precsim.amp.scalers.settings import checked, require, written

__all__ = ["DynamicScaler", "Scaler", "State"]


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What a scaler knows between two steps.

    Attributes
    ----------
    scale : float
        The loss scale of the next step; exactly a float32 number where the original keeps it in float32.
    raised : str or None
        The exception with which the original would have ended the run, else None. A machine that raised stays as it is.
    """

    scale: float
    raised: str | None = None


S = TypeVar("S", bound=State)


class Scaler(ABC, Generic[S]):
    """A loss scaler: frozen settings, a first state, and a step from state to state.

    Attributes
    ----------
    name : str
        As `parse_scaler` takes it.
    other_names : tuple of str
        Further names that `parse_scaler` takes.
    originals : mapping of str to str
        The original's names of settings that are named differently here.
    """

    name: ClassVar[str]
    other_names: ClassVar[tuple[str, ...]] = ()
    originals: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for field in self.settings():
            object.__setattr__(self, field.name, checked(field, getattr(self, field.name)))
        self._check()

    def _check(self) -> None:
        """Refuse settings that the original can't run with."""

    @classmethod
    def settings(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The settings' dataclass fields."""
        return dataclasses.fields(cls)  # type: ignore[arg-type]  # every scaler is a dataclass, this base is not

    @property
    def spec(self) -> str:
        """The scaler in one line that `parse_scaler` reads: its name and what is set other than by default."""
        parts = [
            f"{field.name}={written(getattr(self, field.name))}"
            for field in self.settings()
            if getattr(self, field.name) != field.default
        ]
        return self.name + (":" + ",".join(parts) if parts else "")

    def initial(self) -> S:
        """The state before the first step."""
        return self._initial()

    @abstractmethod
    def _initial(self) -> S:
        """`initial`."""

    def update(self, state: S, found_inf: bool, amax: float | None = None) -> S:
        """The state after a step.

        Parameters
        ----------
        state : State
            As `initial` or `update` gave it, or one to resume from.
        found_inf : bool
            Whether a gradient of the step was infinite or NaN at this state's scale.
        amax : float, optional
            Greatest magnitude of the step's unscaled gradients, which `LogNormal` alone needs.

        Returns
        -------
        State
        """
        return state if state.raised is not None else self._next(state, bool(found_inf), amax)

    @abstractmethod
    def _next(self, state: S, found_inf: bool, amax: float | None) -> S:
        """`update` from a state that did not raise."""

    def states(self, found_inf: Iterable[bool], amax: Iterable[float | None] | None = None) -> Iterator[S]:
        """The state after each step of a given sequence.

        Parameters
        ----------
        found_inf : iterable of bool
            Fixed beforehand: it does not follow from the scale (open loop).
        amax : iterable of float, optional
            Of the same length.

        Yields
        ------
        State
        """
        state = self.initial()
        if amax is None:
            for found in found_inf:
                state = self.update(state, found)
                yield state
        else:
            for found, magnitude in zip(found_inf, amax, strict=True):
                state = self.update(state, found, magnitude)
                yield state

    def warnings(self, state: S | None = None) -> tuple[str, ...]:
        """What these settings will do that nobody is told of: what happens, and after how many steps.

        Parameters
        ----------
        state : State, optional
            The state to resume from; by default the initial one.

        Returns
        -------
        tuple of str
            One line each.
        """
        return tuple(self._hazards(self.initial() if state is None else state))

    @abstractmethod
    def _hazards(self, state: S) -> Iterator[str]:
        """The lines of `warnings`."""


class DynamicScaler(Scaler[S]):
    """A scaler whose scale falls on overflow and grows without.

    Attributes
    ----------
    single : bool
        Whether the original keeps its scale in float32 (else in float64, a Python float).
    divides : bool
        Whether the original divides gradients by the scale (else multiplies by its reciprocal).
    checks_first : bool
        Whether the original looks for overflow in the gradients before it unscales them.
    """

    single: ClassVar[bool] = True
    divides: ClassVar[bool] = False
    checks_first: ClassVar[bool] = True

    init: float
    growth_interval: int

    def _check(self) -> None:
        require(self.init > 0, f"init must be above 0, got {self.init:g}")
        self._fits("init")

    def _fits(self, *names: str) -> None:
        """Refuse settings that float32 can't hold, where the original holds them in float32."""
        for name in names if self.single else ():
            value = getattr(self, name)
            require(abs(value) <= FLOAT32_MAX, f"{name} {value:g} is beyond float32")
            require(not value or to_float32(value) != 0, f"{name} {value:g} is 0 in float32")

    def _first(self) -> float:
        """The first scale."""
        return to_float32(self.init) if self.single else self.init

    @abstractmethod
    def _growth(self, scale: float) -> float:
        """The scale after growth."""

    def _good_steps(self, growths: int) -> int:
        """Good steps in a row until the n-th growth."""
        return growths * max(self.growth_interval, 1)

    def _grows(self) -> bool:
        """Whether the scale ever grows."""
        return True

    def _scales(self) -> Mapping[str, float]:
        """The settings that decide which values the scale takes, by name."""
        names = ("init", "growth_factor", "backoff_factor", "factor", "min_scale", "max_scale", "threshold")
        values = {name: getattr(self, name, None) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def _hazards(self, state: S) -> Iterator[str]:
        settings = self._scales()
        yield from hazards.odd_settings(settings)
        if settings.get("backoff_factor", 1) < 0:
            yield f"backoff_factor {settings['backoff_factor']:g} is negative: each overflow turns the scale's sign"
        yield from hazards.start(self, state.scale)
        yield from hazards.fall(self, state)
        if self._grows():
            yield from hazards.stuck(self, state.scale)
            yield from hazards.rise(self, state.scale)
