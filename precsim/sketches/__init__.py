"""One pass over a tensor, in integers: what any cast would do to it."""

from precsim.sketches.error import CastError
from precsim.sketches.outcomes import Outcomes, outcomes
from precsim.sketches.sketch import Curve, Sketch, Window, sketch, sketch_source

__all__ = ["CastError", "Curve", "Outcomes", "Sketch", "Window", "outcomes", "sketch", "sketch_source"]
