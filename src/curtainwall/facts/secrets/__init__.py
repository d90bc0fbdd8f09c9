"""Secrets in text: known by name, by shape or as private keys, and masked in whole texts and in streams."""
