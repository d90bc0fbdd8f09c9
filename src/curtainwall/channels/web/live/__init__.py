"""What changes on open pages, told to every browser that shows it."""
