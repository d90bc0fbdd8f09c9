"""The gate: the steps of a call from its meaning to its outcome, and the checks that a permit still holds."""
