"""Groups: the list of groups with their settings, jobs and counts."""
