"""How things are rendered on a page."""
