-- Lists the jobs of a group in pages, in the order of their creation. The condition is always true.
-- Only a statement that has it too can use the index. Otherwise PostgreSQL preferred the index to
-- the unique key in a search by name, and read all jobs of the group for each name.
CREATE INDEX jobs_in_order ON jobs (organization_id, group_id, id) WHERE id > 0;
