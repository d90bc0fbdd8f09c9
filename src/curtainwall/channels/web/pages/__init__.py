"""The pages and their forms."""
