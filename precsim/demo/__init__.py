"""A small training that runs anywhere: `small_gpt` learns the help texts that come with Python."""

from precsim.demo.training import Training, small_gpt, train

__all__ = ["Training", "small_gpt", "train"]
