"""The roof: configuration, command line, and the one place that introduces the rooms to each other. It is imported bit by bit."""
