"""Changes: the feed of creations, updates and deletions of a group."""
