"""PostgreSQL with Citus: the tables are distributed over workers, by organization."""
