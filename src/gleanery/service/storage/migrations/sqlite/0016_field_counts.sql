-- compatible from schema 16
-- Field statistics count fields instead of shapes. Each output has a bitmap of its fields. An older
-- program would change outputs without their bitmaps and counts, so it must not write any more.
-- Outputs without a bitmap are counted when they are stored again; see storage/statistics.

ALTER TABLE outputs ADD COLUMN fields BLOB;  -- null: not counted
ALTER TABLE job_statistics ADD COLUMN field_counts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE job_statistics DROP COLUMN shape_counts;
DROP TABLE job_shapes;

-- Deleted outputs that the current scrape of their job has seen.
CREATE TABLE deleted_in_scrape (
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    fields          BLOB    NOT NULL,
    PRIMARY KEY (organization_id, group_id, job_id, identity)
) STRICT, WITHOUT ROWID;
