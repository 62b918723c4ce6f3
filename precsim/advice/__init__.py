"""Which format, which scale, how sure: advice from recorded gradients, with its evidence."""

from precsim.advice.apart import SetApart, set_apart
from precsim.advice.evidence import true_gradients, unproven
from precsim.advice.options import Option, TensorScale
from precsim.advice.recommend import Advice, StepWindow, advise, advise_on
from precsim.advice.risk import FlushTrend, Risk, flush_trend, overflow_risk

__all__ = [
    "Advice",
    "FlushTrend",
    "Option",
    "Risk",
    "SetApart",
    "StepWindow",
    "TensorScale",
    "advise",
    "advise_on",
    "flush_trend",
    "overflow_risk",
    "set_apart",
    "true_gradients",
    "unproven",
]
