"""Agents behind one port: our own that writes programs, and those of others; no channel can tell them apart."""
