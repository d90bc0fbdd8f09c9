"""The tests, importable as a package so that they can share `tests.support`."""
