"""Scalers that look at iterations since the last overflow, modulo a window: fairseq, metaseq, OpenSeq2Seq's backoff."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from precsim.amp.scalers.float32 import to_float32
from precsim.amp.scalers.machine import DynamicScaler, State
from precsim.amp.scalers.settings import require

__all__ = ["Backoff", "Fairseq", "FairseqState", "Metaseq", "WindowState"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowState(State):
    """State of `Backoff`.

    Attributes
    ----------
    iteration : int
        Steps so far.
    last_overflow : int
        The iteration of the last overflow, −1 for none.
    """

    iteration: int = 0
    last_overflow: int = -1


@dataclass(frozen=True)
class Backoff(DynamicScaler[WindowState]):
    """OpenSeq2Seq's `BackoffScaler`.

    The scale is float32, starts at its cap and stays between floor and cap. The original's graph does not order the
    iteration counter's increment after its use, so its first growth may come one step earlier.

    Source: NVIDIA/OpenSeq2Seq, `open_seq2seq/optimizers/automatic_loss_scaler.py`.

    Parameters
    ----------
    min_scale, max_scale : float
        `scale_min`, `scale_max`; the latter is 2^14 in some copies of the file.
    factor : float
        `step_factor`.
    growth_interval : int
        `step_window`.

    Raises
    ------
    InputError
        For settings that can't work.
    """

    name: ClassVar[str] = "backoff"
    other_names: ClassVar[tuple[str, ...]] = ("openseq2seq",)
    originals: ClassVar[Mapping[str, str]] = {
        "scale_min": "min_scale",
        "scale_max": "max_scale",
        "step_factor": "factor",
        "step_window": "growth_interval",
    }

    max_scale: float = 2.0**24
    min_scale: float = 1.0
    factor: float = 2.0
    growth_interval: int = 2000

    def _check(self) -> None:
        require(
            0 < self.min_scale <= self.max_scale,
            f"min_scale must be above 0 and at most max_scale, got {self.min_scale:g} and {self.max_scale:g}",
        )
        require(self.factor > 1, f"factor must be above 1, got {self.factor:g}")
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        self._fits("min_scale", "max_scale", "factor")

    def _initial(self) -> WindowState:
        return WindowState(scale=to_float32(self.max_scale))

    def _next(self, state: WindowState, found_inf: bool, amax: float | None) -> WindowState:
        after = state.iteration + 1
        if found_inf:
            lowered = to_float32(state.scale / to_float32(self.factor))
            return WindowState(scale=self._clipped(lowered), iteration=after, last_overflow=state.iteration)
        grows = (state.iteration - state.last_overflow) % self.growth_interval == 0
        scale = self._growth(state.scale) if grows else state.scale
        return replace(state, scale=scale, iteration=after)

    def _growth(self, scale: float) -> float:
        return self._clipped(to_float32(scale * to_float32(self.factor)))

    def _clipped(self, scale: float) -> float:
        return max(min(scale, to_float32(self.max_scale)), to_float32(self.min_scale))


@dataclass(frozen=True, kw_only=True, slots=True)
class FairseqState(State):
    """State of `Fairseq` and `Metaseq`.

    Attributes
    ----------
    iteration : int
        Steps so far.
    last_overflow, last_rescale : int
        Iterations of the last overflow and of the last change of the scale, −1 for none.
    overflows : int
        Overflows since the last change of the scale downward.
    window : float
        Good steps between growths, which `Metaseq` changes.
    """

    iteration: int = 0
    last_overflow: int = -1
    last_rescale: int = -1
    overflows: int = 0
    window: float


class _Tolerant(DynamicScaler[FairseqState]):
    """Falls when the share of overflows since the last change reaches a tolerance."""

    single: ClassVar[bool] = False

    factor: float
    growth_interval: int
    tolerance: float
    threshold: float | None
    min_scale: float

    def _check(self) -> None:
        super()._check()
        require(self.factor > 1, f"factor must be above 1, got {self.factor:g}")
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        require(0 <= self.tolerance <= 1, f"tolerance must be a share in 0 … 1, got {self.tolerance:g}")
        require(
            self.threshold is None or self.threshold > 0,
            f"threshold must be above 0 or none, got {self.threshold}",
        )

    def _initial(self) -> FairseqState:
        return FairseqState(scale=self._first(), window=self.growth_interval)

    def _next(self, state: FairseqState, found_inf: bool, amax: float | None) -> FairseqState:
        return self._after_overflow(state) if found_inf else self._after_good(state)

    def _after_good(self, state: FairseqState) -> FairseqState:
        if (state.iteration - state.last_overflow) % state.window:
            return replace(state, iteration=state.iteration + 1)
        return replace(
            state,
            scale=self._growth(state.scale),
            window=self._grown_window(state.window),
            last_rescale=state.iteration,
            iteration=state.iteration + 1,
        )

    def _after_overflow(self, state: FairseqState) -> FairseqState:
        passed = (
            state.iteration - state.last_rescale or 1000
        )  # fairseq's own number for a step that can't come
        overflows = state.overflows + 1
        fallen = replace(state, overflows=overflows, last_overflow=state.iteration)
        if overflows / passed >= self.tolerance:
            lowered = state.scale / self.factor
            fallen = replace(
                fallen,
                scale=lowered if self.threshold is None else max(lowered, self.threshold),
                window=self._shrunk_window(state.window),
                last_rescale=state.iteration,
                overflows=0,
            )
        return self._at_minimum(state, replace(fallen, iteration=state.iteration + 1))

    @abstractmethod
    def _at_minimum(self, before: FairseqState, after: FairseqState) -> FairseqState:
        """The state after an overflow, with regard to the minimum."""

    def _grown_window(self, window: float) -> float:
        return window

    def _shrunk_window(self, window: float) -> float:
        return window

    def _growth(self, scale: float) -> float:
        return scale * self.factor


@dataclass(frozen=True)
class Fairseq(_Tolerant):
    """fairseq's `DynamicLossScaler`.

    The scale is a Python float.

    Source: facebookresearch/fairseq, `fairseq/optim/dynamic_loss_scaler.py`; defaults as `FP16Optimizer` and the
    configuration set them for one GPU without accumulation.

    Parameters
    ----------
    init : float
        `init_scale`; 2^15 in the class, 2^7 (`--fp16-init-scale`) in the configuration.
    factor : float
        `scale_factor`.
    growth_interval : int
        `scale_window`: 2^14 / GPUs / update_freq.
    tolerance : float
        Share of overflows since the last change of the scale from which on it falls.
    threshold : float or None
        `threshold_loss_scale`: floor.
    min_scale : float
        `min_loss_scale`: at this scale or below an overflow raises FloatingPointError (`State.raised`), the scale
        kept as it was before.

    Raises
    ------
    InputError
        For settings that can't work.
    """

    name: ClassVar[str] = "fairseq"
    originals: ClassVar[Mapping[str, str]] = {
        "init_scale": "init",
        "scale_factor": "factor",
        "scale_window": "growth_interval",
        "threshold_loss_scale": "threshold",
        "min_loss_scale": "min_scale",
    }

    init: float = 2.0**7
    factor: float = 2.0
    growth_interval: int = 2**14
    tolerance: float = 0.0
    threshold: float | None = None
    min_scale: float = 1e-4

    def _scales(self) -> Mapping[str, float]:
        # The scale never takes the value of min_scale: it is where the run ends.
        return {name: value for name, value in super()._scales().items() if name != "min_scale"}

    def _at_minimum(self, before: FairseqState, after: FairseqState) -> FairseqState:
        if after.scale > self.min_scale:
            return after
        text = f"FloatingPointError: Minimum loss scale reached ({self.min_scale})"
        return replace(after, scale=before.scale, iteration=before.iteration, raised=text)


@dataclass(frozen=True)
class Metaseq(_Tolerant):
    """metaseq's `DynamicLossScaler`, which trained OPT.

    fairseq's with a window that doubles with the scale and halves with it; at the minimum steps are skipped on and on.

    Source: facebookresearch/metaseq, `metaseq/optim/dynamic_loss_scaler.py` (PR #115).

    Parameters
    ----------
    init : float
        `init_scale`.
    factor : float
        `scale_factor`, of the scale and of the window.
    growth_interval : int
        `scale_window` at the start.
    tolerance, threshold : float
        As for `Fairseq`.
    min_scale : float
        `min_loss_scale`: a step below it is not made.

    Raises
    ------
    InputError
        For settings that can't work.
    """

    name: ClassVar[str] = "metaseq"
    other_names: ClassVar[tuple[str, ...]] = ("opt",)
    originals: ClassVar[Mapping[str, str]] = {
        "init_scale": "init",
        "scale_factor": "factor",
        "scale_window": "growth_interval",
        "threshold_loss_scale": "threshold",
        "min_loss_scale": "min_scale",
    }

    init: float = 4.0
    factor: float = 2.0
    growth_interval: int = 256
    tolerance: float = 0.0
    threshold: float | None = None
    min_scale: float = 2.0**-5

    def _at_minimum(self, before: FairseqState, after: FairseqState) -> FairseqState:
        return replace(after, scale=before.scale) if after.scale < self.min_scale else after

    def _grown_window(self, window: float) -> float:
        return window * self.factor

    def _shrunk_window(self, window: float) -> float:
        return max(int(window / self.factor), 1)
