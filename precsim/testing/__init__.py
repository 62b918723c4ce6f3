"""Tools to test a number format or somebody's kernel with."""

from precsim.testing.boundaries import boundary_values

__all__ = ["boundary_values"]
