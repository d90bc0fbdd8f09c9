"""Finds secrets in text, by name, by shape and as private keys, and masks them in whole texts and in streams."""
