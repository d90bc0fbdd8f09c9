"""The Python interface: sessions and teams for programs."""
