"""External agents, put together: images, keys, and their two ways out, to the gate and to their models."""
