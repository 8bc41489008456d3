"""Work of an operator outside the running service: backups, key rotation and demo data."""
