"""Recording of a training: hooks that sketch gradients where they live, and a folder that loses nothing."""

from precsim.recording.recorder import Recorder, record

__all__ = ["Recorder", "record"]
