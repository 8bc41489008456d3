-- Finds the newest reviews of a job, and its last approval, without a sort of all its reviews.
DROP INDEX reviews_of_job;
CREATE INDEX reviews_of_job ON reviews (group_id, job_id, id);
CREATE INDEX reviews_approving_job ON reviews (group_id, job_id, id)
    WHERE status = 'approved' AND output_ids IS NULL;

-- Finds the records of an organization that expire next, without reading its other records.
CREATE INDEX cookies_expiring ON cookies (organization_id, expires, host, profile)
    WHERE expires IS NOT NULL;
CREATE INDEX local_storage_expiring ON local_storage (organization_id, expires, host, profile)
    WHERE expires IS NOT NULL;
