"""The web pages as a service: what they are given, where they listen, and who signs in."""
