"""The `filesystem` tools: reading, writing, moving and walking by descriptor."""
