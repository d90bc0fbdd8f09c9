"""Rules taken over from other programs."""
