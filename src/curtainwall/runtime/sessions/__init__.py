"""Open sessions: the actor that decides for each, the feed of what happened, and the alarm for deadlines."""
