-- Lists the jobs of a group in pages, in the order of their creation.
CREATE INDEX jobs_in_order ON jobs (organization_id, group_id, id);
