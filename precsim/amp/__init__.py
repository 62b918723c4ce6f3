"""Mixed precision as state machines: loss scalers now, and what builds on them.

`precsim.amp.scalers` holds every loss scaler.
"""

from precsim.amp import scalers

__all__ = ["scalers"]
