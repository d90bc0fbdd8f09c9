"""Live updates of open pages, sent to every browser that shows them."""
