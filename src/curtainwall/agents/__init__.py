"""Agents behind one port: our own that writes programs; no channel can tell them apart."""
