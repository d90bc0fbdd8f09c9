"""Views of a project: an agent works on a copy-on-write view, and what it changed there is read, kept, applied and taken back."""
