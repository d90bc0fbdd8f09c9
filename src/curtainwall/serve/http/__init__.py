"""Web servers inside our own loop: connections within bounds, and a port for one application."""
