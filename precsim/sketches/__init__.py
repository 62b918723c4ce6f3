"""One pass over a tensor, in integers: what any cast would do to it."""

from precsim.sketches.outcomes import Outcomes, outcomes
from precsim.sketches.sketch import Sketch, Window, sketch, sketch_source

__all__ = ["Outcomes", "Sketch", "Window", "outcomes", "sketch", "sketch_source"]
