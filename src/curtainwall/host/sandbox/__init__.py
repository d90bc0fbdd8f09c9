"""The sandbox: namespaces, mounts, limits, and the processes that run in it."""
