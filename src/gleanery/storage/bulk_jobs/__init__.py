"""Long work on a group, done in short transactions that survive a crash."""
