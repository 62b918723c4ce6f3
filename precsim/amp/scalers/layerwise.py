"""A scale for each layer: adaptive loss scaling (Zhao et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar

from precsim.amp.scalers import hazards
from precsim.amp.scalers.float32 import to_float16
from precsim.amp.scalers.machine import Scaler, State
from precsim.amp.scalers.settings import require

__all__ = ["LayerFacts", "LayerWise", "LayerWiseState"]


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """What a layer's scale follows from: the gradient g that enters its backward pass, and its weight W.

    Attributes
    ----------
    gradient_mean, gradient_std, gradient_amax : float
        Of the unscaled gradient; the standard deviation is that of the population.
    weight_mean, weight_std, weight_amax : float
    fan_in : int
        As the original counts it: rows of a linear weight, out_channels·height·width of a convolution's.
    """

    gradient_mean: float
    gradient_std: float
    gradient_amax: float
    weight_mean: float
    weight_std: float
    weight_amax: float
    fan_in: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWiseState(State):
    """State of `LayerWise`.

    Attributes
    ----------
    scale : float
        Of the loss.
    layers : tuple of float
        The accumulated scale of the gradient that leaves each layer, in the order of the backward pass.
    unbounded : tuple of float
        What each layer asked for when it was last looked at.
    iteration : int
        Steps so far.
    """

    layers: tuple[float, ...] = ()
    unbounded: tuple[float, ...] = ()
    iteration: int = 0


@dataclass(frozen=True)
class LayerWise(Scaler[LayerWiseState]):
    """Adaptive loss scaling: each layer lifts its own gradient out of underflow, by the statistics of g·W.

    The product of independent g and W of zero mean has variance (σg² + μg²)(σW² + μW²); a layer's output sums
    fan_in / 2 of them (half are taken to be cut by a ReLU). The scale is the least that leaves a share of
    `underflow` below `smallest`, not more than keeps the greatest possible sum below `largest`, at least 1 before that;
    then bounded, and lowered to a power of two. It travels with the gradient and is divided out at the weight. Overflow
    changes nothing.

    The original computes in float32; here float64 stands until the power of two is taken, exactly.

    Source: Zhao, Vogel, Ahmed, "Adaptive Loss Scaling for Mixed Precision Training" (arXiv 1910.12385);
    kumasento/gradient-scaling, `ada_loss/ada_loss.py`, `ada_loss/chainer_impl/ada_loss.py` (`approx_range`).

    Parameters
    ----------
    init : float
        Scale of the loss.
    max_layer_scale : float
        `scale_upper_bound`: of one layer; 16, or 128 in the original's experiments.
    max_accumulated : float
        `accum_upper_bound`: of the product so far; 1024, or 4096.
    underflow : float
        `n_uf_threshold`: share of products that may underflow.
    smallest, largest : float
        `u_min`, `u_max`: usable magnitudes of FP16, as the original rounds them.
    every : int
        `update_per_n_iteration`: steps between looks at the statistics.
    power_of_two : bool

    Raises
    ------
    InputError
        For settings that can't work, and by `scaled` where the number of layers changes between looks.

    Examples
    --------
    >>> facts = LayerFacts(gradient_mean=0, gradient_std=1e-6, gradient_amax=5e-6,
    ...                    weight_mean=0, weight_std=0.02, weight_amax=0.1, fan_in=512)
    >>> scaler = LayerWise()
    >>> scaler.scaled(scaler.initial(), [facts, facts, facts]).layers
    (16.0, 128.0, 128.0)
    """

    name: ClassVar[str] = "layerwise"
    other_names: ClassVar[tuple[str, ...]] = ("adaptive", "ada-loss")
    originals: ClassVar[Mapping[str, str]] = {
        "scale_upper_bound": "max_layer_scale",
        "accum_upper_bound": "max_accumulated",
        "n_uf_threshold": "underflow",
        "u_min": "smallest",
        "u_max": "largest",
        "update_per_n_iteration": "every",
    }

    init: float = 1.0
    max_layer_scale: float = 16.0
    max_accumulated: float = 1024.0
    underflow: float = 1e-3
    smallest: float = 6e-8
    largest: float = 6e4
    every: int = 1
    power_of_two: bool = True

    def _check(self) -> None:
        require(self.init > 0, f"init must be above 0, got {self.init:g}")
        for name in ("max_layer_scale", "max_accumulated"):
            value = getattr(self, name)
            require(0 < value <= 65504, f"{name} must be above 0 and within float16, got {value:g}")
        require(0 < self.underflow < 1, f"underflow must be a share in 0 … 1, got {self.underflow:g}")
        require(
            0 < self.smallest < self.largest,
            f"smallest must be above 0 and below largest, got {self.smallest:g} and {self.largest:g}",
        )
        require(self.every >= 1, f"every must be at least 1, got {self.every}")

    def _initial(self) -> LayerWiseState:
        return LayerWiseState(scale=self.init)

    def _next(self, state: LayerWiseState, found_inf: bool, amax: float | None) -> LayerWiseState:
        return replace(state, iteration=state.iteration + 1)

    def scaled(self, state: LayerWiseState, layers: Iterable[LayerFacts]) -> LayerWiseState:
        """The state with each layer's scale, before the step of this state ends with `update`.

        Parameters
        ----------
        state : LayerWiseState
        layers : iterable of LayerFacts
            In the order of the backward pass.

        Returns
        -------
        LayerWiseState
        """
        facts = list(layers)
        looks = state.iteration % self.every == 0 or not state.unbounded
        require(
            looks or len(facts) == len(state.unbounded),
            f"{len(facts)} layers were given where {len(state.unbounded)} were looked at before",
        )
        incoming, accumulated, unbounded = self.init, [], []
        for index, layer in enumerate(facts):
            asked = self._asked(layer, incoming) if looks else state.unbounded[index]
            unbounded.append(asked)
            incoming = to_float16(self._bounded(asked, incoming) * incoming)
            accumulated.append(incoming)
        return replace(state, layers=tuple(accumulated), unbounded=tuple(unbounded))

    def _asked(self, layer: LayerFacts, incoming: float) -> float:
        """The scale that a layer asks for, given the scale that its gradient already carries."""
        gradient = incoming * math.hypot(layer.gradient_std, layer.gradient_mean)
        weight = math.hypot(layer.weight_std, layer.weight_mean)
        deviation = gradient * weight * math.sqrt(0.5 * layer.fan_in)
        if deviation == 0:
            return 1.0
        quantile = NormalDist().inv_cdf(
            (1 + self.underflow) / 2
        )  # a share `underflow` lies within ± this many σ
        asked = max(self.smallest / (quantile * deviation), 1.0)
        greatest = incoming * layer.gradient_amax * layer.weight_amax
        return min(asked, self.largest / layer.fan_in / greatest) if greatest else asked

    def _bounded(self, asked: float, incoming: float) -> float:
        bounded = min(asked, self.max_accumulated / incoming, self.max_layer_scale)
        if self.power_of_two and bounded > 0:
            bounded = math.ldexp(0.5, math.frexp(bounded)[1])
        return to_float16(bounded)

    def _hazards(self, state: LayerWiseState) -> Iterator[str]:
        odd = {"init": self.init}
        if not self.power_of_two:
            yield "power_of_two is off: each layer's scaling and unscaling round every gradient, at every step"
        yield from hazards.odd_settings(odd)
        yield "no overflow lowers a layer's scale: a step that overflows is skipped or taken as the training loop will"
