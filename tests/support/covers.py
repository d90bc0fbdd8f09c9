"""The mark that ties a test to the requirements it holds up."""

import pytest

covers = pytest.mark.covers
"""`@covers("id", …)`: this test fails when one of these requirements of tests/spec/requirements.toml is broken."""
