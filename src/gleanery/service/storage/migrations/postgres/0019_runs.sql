-- compatible from schema 19
-- Runs: every stored output belongs to a run of its job. An older program would store outputs
-- without a run, so it must not write any more. Scrapes, which were runs without a name, become
-- runs. What they created or changed is not known, so all their outputs count as unchanged.

CREATE TABLE runs (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id  BIGINT  NOT NULL,
    group_id         BIGINT  NOT NULL,
    job_id           BIGINT  NOT NULL,
    run_id           TEXT    NOT NULL,             -- run_id in the API
    is_implicit      BOOLEAN NOT NULL,             -- nobody has started it: it began with a batch
    status           TEXT    NOT NULL,             -- running, or how it ended
    is_open          BOOLEAN NOT NULL DEFAULT FALSE,  -- it runs, or outputs are compared or removed
    started_at       BIGINT  NOT NULL,             -- after the last batch of each earlier run
    seen_at          BIGINT  NOT NULL,             -- its last batch, or its start
    ends_at          BIGINT  NOT NULL,             -- it ends then, unless there is another batch
    finished_at      BIGINT,
    message          TEXT,
    labels           TEXT    NOT NULL DEFAULT '{}',
    created_count    BIGINT  NOT NULL DEFAULT 0,
    updated_count    BIGINT  NOT NULL DEFAULT 0,
    unchanged_count  BIGINT  NOT NULL DEFAULT 0,
    rejected_count   BIGINT  NOT NULL DEFAULT 0,
    missing_count    BIGINT  NOT NULL DEFAULT 0,
    removed_count    BIGINT  NOT NULL DEFAULT 0,
    sighting_count   BIGINT  NOT NULL DEFAULT 0,   -- rows of run_sightings
    slot_counts      TEXT,                         -- fields of its outputs while it runs
    field_counts     TEXT,                         -- the same by name, after its end
    complete_number  BIGINT,                       -- number of a complete run of the job
    comparison       TEXT,                         -- null, pending or done: which are missing
    compared_until   BIGINT  NOT NULL DEFAULT 0,   -- outputs up to this number are compared
    compared_seq     BIGINT  NOT NULL DEFAULT 0,   -- how far the comparison is
    output_count     BIGINT  NOT NULL DEFAULT 0,   -- outputs of the job that were compared
    removal          TEXT,                         -- null, pending, held, done, kept or replaced
    removal_count    BIGINT  NOT NULL DEFAULT 0,   -- outputs to remove
    removal_until    BIGINT  NOT NULL DEFAULT 0,   -- those that are missing since this run, or longer
    removed_seq      BIGINT  NOT NULL DEFAULT 0,   -- how far the removal is
    PRIMARY KEY (organization_id, id)
) WITH (fillfactor = 50);

CREATE INDEX runs_of_group ON runs (group_id, id);
CREATE INDEX runs_of_job   ON runs (group_id, job_id, id);
CREATE INDEX runs_by_run_id ON runs (run_id, organization_id);
CREATE INDEX runs_open ON runs (group_id, job_id, id) WHERE is_open;
CREATE INDEX runs_held ON runs (organization_id, id) WHERE removal = 'held';

-- Outputs that a running run has seen, and whose rows do not say so any more: they were deleted, or
-- another run has seen them since then.
CREATE TABLE run_sightings (
    organization_id BIGINT   NOT NULL,
    group_id        BIGINT   NOT NULL,
    job_id          BIGINT   NOT NULL,
    run_id          BIGINT   NOT NULL,
    identity        BYTEA    NOT NULL,
    run_change      SMALLINT NOT NULL,
    fields          BYTEA,                        -- null: not counted
    generation      INTEGER  NOT NULL,            -- of the slots in fields; see slot_counts
    PRIMARY KEY (organization_id, group_id, job_id, run_id, identity)
);

ALTER TABLE outputs ADD COLUMN run_id BIGINT NOT NULL DEFAULT 0;         -- run that sent it last
ALTER TABLE outputs ADD COLUMN run_change SMALLINT NOT NULL DEFAULT 0;   -- what that run changed
ALTER TABLE outputs ADD COLUMN missing_since BIGINT NOT NULL DEFAULT 0;  -- number of a run
CREATE INDEX outputs_by_missing ON outputs (group_id, seq) WHERE missing_since > 0;
CREATE INDEX outputs_missing_by_job ON outputs (group_id, job_id, seq) WHERE missing_since > 0;

ALTER TABLE tombstones ADD COLUMN reason TEXT;
ALTER TABLE view_tombstones ADD COLUMN reason TEXT;

ALTER TABLE jobs ADD COLUMN complete_runs BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN kept_runs BIGINT NOT NULL DEFAULT 0;  -- their removals do not count

ALTER TABLE groups ADD COLUMN run_timeout_minutes INTEGER;
ALTER TABLE groups ADD COLUMN missing_after_runs INTEGER;
ALTER TABLE groups ADD COLUMN missing_max_share DOUBLE PRECISION;

INSERT INTO runs (organization_id, group_id, job_id, run_id, is_implicit, status, started_at,
    seen_at, ends_at, finished_at, unchanged_count, field_counts)
SELECT organization_id, group_id, job_id,
    md5(organization_id || '/' || job_id || '/' || started_at), TRUE, 'unknown',
    started_at, seen_at, seen_at, seen_at,
    CASE WHEN counts LIKE '[%' THEN CAST(counts::jsonb ->> 0 AS BIGINT)
        ELSE (SELECT coalesce(sum(CAST(value AS BIGINT)), 0) FROM jsonb_each_text(counts::jsonb))
    END,
    counts
FROM job_scrapes ORDER BY started_at;

-- The current scrapes are over. The next batch of the job, or the sweep, stores their fields.
INSERT INTO runs (organization_id, group_id, job_id, run_id, is_implicit, status, is_open,
    started_at, seen_at, ends_at, unchanged_count, slot_counts)
SELECT organization_id, group_id, job_id,
    md5(organization_id || '/' || job_id || '/' || scrape_started_at), TRUE, 'running', TRUE,
    scrape_started_at, scrape_seen_at, scrape_seen_at,
    CASE WHEN scrape_counts LIKE '[_%]' THEN coalesce(CAST(scrape_counts::jsonb ->> 0 AS BIGINT), 0)
        ELSE 0 END,
    CASE WHEN scrape_counts LIKE '[%' THEN scrape_counts ELSE '[]' END
FROM job_statistics ORDER BY scrape_started_at;

ALTER TABLE job_statistics DROP COLUMN scrape_started_at;
ALTER TABLE job_statistics DROP COLUMN scrape_seen_at;
ALTER TABLE job_statistics DROP COLUMN scrape_counts;
DROP TABLE job_scrapes;
DROP TABLE deleted_in_scrape;
