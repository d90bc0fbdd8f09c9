"""Open sessions: one actor each, who decides, the feed of what happened, and the alarm for deadlines."""
