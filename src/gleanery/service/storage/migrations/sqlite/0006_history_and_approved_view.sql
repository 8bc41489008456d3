-- Earlier versions of outputs, and the approved view.

ALTER TABLE outputs ADD COLUMN version_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outputs ADD COLUMN history_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outputs ADD COLUMN view_seq INTEGER NOT NULL DEFAULT 0;
UPDATE outputs SET version_seq = seq, view_seq = CASE WHEN approved THEN seq ELSE 0 END;

ALTER TABLE groups ADD COLUMN keep_versions INTEGER;
ALTER TABLE groups ADD COLUMN keep_days INTEGER;
ALTER TABLE groups ADD COLUMN view_purged_seq INTEGER NOT NULL DEFAULT 0;

-- Earlier versions of outputs. A row is a segment: consecutive versions of one output.
CREATE TABLE output_history (
    organization_id    INTEGER NOT NULL,
    identity           BLOB    NOT NULL,
    seq                INTEGER NOT NULL,          -- where the first version of the segment began
    group_id           INTEGER NOT NULL,
    first_replaced_seq INTEGER NOT NULL,          -- where its oldest version was replaced
    version_count      INTEGER NOT NULL,
    versions           BLOB    NOT NULL,          -- entries, newest first: see storage/history
    PRIMARY KEY (identity, organization_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX output_history_by_age ON output_history (group_id, first_replaced_seq);

-- The approved view consists of the approved outputs and, for an output with a newer value that is
-- not approved, of its last approved version, which is here. seq is its position in the view.
CREATE TABLE approved_versions (
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    id              INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    view_seq        INTEGER NOT NULL,
    version_seq     INTEGER NOT NULL,
    url_hash        BLOB    NOT NULL,
    country         TEXT,
    region          TEXT,
    file_ids        BLOB    NOT NULL,
    item            BLOB    NOT NULL,
    PRIMARY KEY (identity, organization_id)
) STRICT;

CREATE INDEX approved_versions_in_order   ON approved_versions (group_id, seq);
CREATE INDEX approved_versions_by_job     ON approved_versions (group_id, job_id, seq);
CREATE INDEX approved_versions_by_url     ON approved_versions (group_id, url_hash, seq);
CREATE INDEX approved_versions_by_country ON approved_versions (group_id, country, seq)
    WHERE country IS NOT NULL;
CREATE INDEX approved_versions_by_region  ON approved_versions (group_id, region, seq)
    WHERE region IS NOT NULL;

-- The approved outputs of a job: an expression, so that a planner cannot choose another index.
CREATE INDEX outputs_approved_by_job
    ON outputs (group_id, (CAST(CASE WHEN approved THEN job_id END AS BIGINT)), seq)
    WHERE CAST(CASE WHEN approved THEN job_id END AS BIGINT) IS NOT NULL;

-- Removals from the approved view, in the change order.
CREATE TABLE view_tombstones (
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    id              INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    job_name        TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
) STRICT, WITHOUT ROWID;
