-- Field statistics: shapes of outputs, counted per job and scrape.

ALTER TABLE outputs ADD COLUMN shape BIGINT;  -- null: stored before this migration

-- Field statistics. A shape is the set of the fields of a value, with their kinds; shape 0 stands
-- for all shapes that are not counted separately. The columns in JSON: see storage/statistics.

-- The outputs of a job by shape, the ranges of its fields, and its current scrape.
CREATE TABLE job_statistics (
    organization_id   BIGINT  NOT NULL,
    group_id          BIGINT  NOT NULL,
    job_id            BIGINT  NOT NULL,
    scrape_started_at BIGINT  NOT NULL,
    scrape_seen_at    BIGINT  NOT NULL,
    scrape_counts     TEXT    NOT NULL,           -- outputs by shape
    shape_counts      TEXT    NOT NULL,           -- outputs by shape, with examples
    ranges            TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, job_id)
);

CREATE TABLE job_shapes (
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT  NOT NULL,
    shape           BIGINT  NOT NULL,
    fields          TEXT,                         -- null: too many
    PRIMARY KEY (organization_id, group_id, job_id, shape)
);

-- Scrapes that have ended.
CREATE TABLE job_scrapes (
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT  NOT NULL,
    started_at      BIGINT  NOT NULL,
    seen_at         BIGINT  NOT NULL,
    counts          TEXT    NOT NULL,             -- outputs by shape
    PRIMARY KEY (organization_id, group_id, job_id, started_at)
);
