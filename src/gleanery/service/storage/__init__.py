"""Storage: one database protocol, two engines, tenancy, and the schema with its migrations."""
