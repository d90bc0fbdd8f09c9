"""How things look on a page."""
