"""A loss scale that never changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from precsim.amp.scalers import hazards
from precsim.amp.scalers.float32 import FLOAT32_MAX
from precsim.amp.scalers.machine import Scaler, State
from precsim.amp.scalers.settings import require

__all__ = ["Static"]


@dataclass(frozen=True)
class Static(Scaler[State]):
    """A constant scale: Megatron-LM's `ConstantGradScaler`, DeepSpeed's `LossScaler`, jmp's `StaticLossScale`.

    Whether an overflow skips its step is the training loop's matter (Megatron-LM skips it, DeepSpeed's scaler reports
    none); no overflow lowers the scale.

    Source: Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740), 3.2.

    Parameters
    ----------
    scale : float

    Raises
    ------
    InputError
        Unless 0 < scale < ∞ in float32.

    Examples
    --------
    >>> Static(1024).initial().scale
    1024.0
    """

    name: ClassVar[str] = "static"
    other_names: ClassVar[tuple[str, ...]] = ("constant", "fixed")
    originals: ClassVar[Mapping[str, str]] = {"init": "scale", "loss_scale": "scale"}

    scale: float

    def _check(self) -> None:
        require(
            0 < self.scale <= FLOAT32_MAX, f"scale must be above 0 and within float32, got {self.scale:g}"
        )

    def _initial(self) -> State:
        return State(scale=self.scale)

    def _next(self, state: State, found_inf: bool, amax: float | None) -> State:
        return state

    def _hazards(self, state: State) -> Iterator[str]:
        yield from hazards.odd_settings({"scale": state.scale})
        yield from hazards.unusable(state.scale)
