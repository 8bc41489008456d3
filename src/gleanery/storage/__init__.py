"""Where records live: one protocol, two engines, one file of queries per resource."""
