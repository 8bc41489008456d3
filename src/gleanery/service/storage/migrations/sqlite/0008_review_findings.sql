-- What a review is about: a state of the job, single outputs, and findings.

ALTER TABLE reviews ADD COLUMN as_of INTEGER;
ALTER TABLE reviews ADD COLUMN output_ids TEXT;
ALTER TABLE reviews ADD COLUMN skipped_output_ids TEXT;
ALTER TABLE reviews ADD COLUMN findings TEXT NOT NULL DEFAULT '[]';
CREATE INDEX reviews_by_review_id ON reviews (organization_id, review_id);

ALTER TABLE bulk_jobs ADD COLUMN as_of INTEGER NOT NULL DEFAULT 0;
UPDATE bulk_jobs SET as_of = until_seq;
