"""Groups as clients see them: settings, jobs and counts."""
