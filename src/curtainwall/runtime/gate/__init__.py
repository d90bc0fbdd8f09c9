"""The gate: the steps of a call, from its meaning to its outcome, and what watches over a permit."""
