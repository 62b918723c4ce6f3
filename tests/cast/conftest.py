"""Every test of a cast runs on every engine that works here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import precsim as ps


@pytest.fixture(params=["native", "array"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of the engine in use during the test."""
    if request.param not in ps.available_engines():
        pytest.skip("the native engine was not built here: no C++ compiler was found")
    with ps.use_engine(request.param):
        yield request.param
