"""Asks as files, for scripts and other programs."""
