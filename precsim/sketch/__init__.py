"""One pass over a tensor, in integers: what any cast would do to it."""

from precsim.sketch.outcomes import Outcomes, outcomes
from precsim.sketch.sketch import Sketch, Window, sketch, sketch_source

__all__ = ["Outcomes", "Sketch", "Window", "outcomes", "sketch", "sketch_source"]
