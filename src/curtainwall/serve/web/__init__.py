"""The web pages as a service: their ports, where they listen, and who signs in."""
