"""Open asks: the board, their cards, who may answer, and reminders."""
