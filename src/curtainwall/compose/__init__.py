"""The one place that connects the packages to each other, in levels: store, sessions, gate, agents."""
