"""Storage: one database protocol, two engines, and a package of queries for each resource."""
