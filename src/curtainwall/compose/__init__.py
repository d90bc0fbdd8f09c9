"""The one place that introduces the packages to each other, in levels: store, sessions, gate, agents."""
