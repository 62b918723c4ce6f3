"""Loss scalers as pure state machines: frozen settings, a first state, a step.

Every scaler answers ``initial()`` and ``update(state, found_inf)``, and ``warnings()`` says what its settings will do
that nobody is told of. `SCALERS` holds them by name, `parse_scaler` reads one from a line.
"""

from precsim.amp.scalers.catalogue import SCALERS, parse_scaler
from precsim.amp.scalers.consecutive import Apex, Jmp, Keras, ShardedTorch, TensorFlow, Torch, TrackerState
from precsim.amp.scalers.hysteresis import (
    DeepSpeed,
    DeepSpeedState,
    ExponentialUpdate,
    GoodAndBadState,
    Megatron,
    MegatronState,
    Paddle,
)
from precsim.amp.scalers.layerwise import LayerFacts, LayerWise, LayerWiseState
from precsim.amp.scalers.machine import Scaler, State
from precsim.amp.scalers.static import Static
from precsim.amp.scalers.statistical import LogNormal, LogNormalState
from precsim.amp.scalers.sweep import Sweep, sweep
from precsim.amp.scalers.windowed import Backoff, Fairseq, FairseqState, Metaseq, WindowState

__all__ = [
    "SCALERS",
    "Apex",
    "Backoff",
    "DeepSpeed",
    "DeepSpeedState",
    "ExponentialUpdate",
    "Fairseq",
    "FairseqState",
    "GoodAndBadState",
    "Jmp",
    "Keras",
    "LayerFacts",
    "LayerWise",
    "LayerWiseState",
    "LogNormal",
    "LogNormalState",
    "Megatron",
    "MegatronState",
    "Metaseq",
    "Paddle",
    "Scaler",
    "ShardedTorch",
    "State",
    "Static",
    "Sweep",
    "TensorFlow",
    "Torch",
    "TrackerState",
    "WindowState",
    "parse_scaler",
    "sweep",
]
