-- Earlier versions of outputs, and the approved view.

ALTER TABLE outputs ADD COLUMN version_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE outputs ADD COLUMN history_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE outputs ADD COLUMN view_seq BIGINT NOT NULL DEFAULT 0;
UPDATE outputs SET version_seq = seq, view_seq = CASE WHEN approved THEN seq ELSE 0 END;

ALTER TABLE groups ADD COLUMN keep_versions INTEGER;
ALTER TABLE groups ADD COLUMN keep_days INTEGER;
ALTER TABLE groups ADD COLUMN view_purged_seq BIGINT NOT NULL DEFAULT 0;

-- Earlier versions of outputs. A row is a segment: consecutive versions of one output.
CREATE TABLE output_history (
    organization_id    BIGINT  NOT NULL,
    identity           BYTEA   NOT NULL,
    seq                BIGINT  NOT NULL,          -- where the first version of the segment began
    group_id           BIGINT  NOT NULL,
    first_replaced_seq BIGINT  NOT NULL,          -- where its oldest version was replaced
    version_count      INTEGER NOT NULL,
    versions           BYTEA   NOT NULL,          -- entries, newest first: see storage/history
    PRIMARY KEY (identity, organization_id, seq)
) WITH (toast_tuple_target = 8160, fillfactor = 80);

-- A segment grows to four times its first size; the free part of a page is for that. Entries are
-- compressed already.
ALTER TABLE output_history ALTER COLUMN versions SET STORAGE EXTERNAL;

CREATE INDEX output_history_by_age ON output_history (group_id, first_replaced_seq);

-- The approved view consists of the approved outputs and, for an output with a newer value that is
-- not approved, of its last approved version, which is here. seq is its position in the view.
CREATE TABLE approved_versions (
    organization_id BIGINT NOT NULL,
    identity        BYTEA  NOT NULL,
    id              BIGINT NOT NULL,
    group_id        BIGINT NOT NULL,
    job_id          BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    view_seq        BIGINT NOT NULL,
    version_seq     BIGINT NOT NULL,
    url_hash        BYTEA  NOT NULL,
    country         TEXT,
    region          TEXT,
    file_ids        BYTEA  NOT NULL,
    item            BYTEA  NOT NULL,
    PRIMARY KEY (identity, organization_id)
) WITH (toast_tuple_target = 8160);

ALTER TABLE approved_versions ALTER COLUMN item SET STORAGE EXTERNAL;

CREATE INDEX approved_versions_in_order   ON approved_versions (group_id, seq);
CREATE INDEX approved_versions_by_job     ON approved_versions (group_id, job_id, seq);
CREATE INDEX approved_versions_by_url     ON approved_versions (group_id, url_hash, seq);
CREATE INDEX approved_versions_by_country ON approved_versions (group_id, country, seq)
    WHERE country IS NOT NULL;
CREATE INDEX approved_versions_by_region  ON approved_versions (group_id, region, seq)
    WHERE region IS NOT NULL;

-- As for the table outputs: otherwise the planner could scan the copies of the group.
ALTER TABLE approved_versions
    ALTER COLUMN job_id   SET (n_distinct = -1),
    ALTER COLUMN url_hash SET (n_distinct = -1),
    ALTER COLUMN country  SET (n_distinct = -1),
    ALTER COLUMN region   SET (n_distinct = -1);

-- The approved outputs of a job: an expression, so that a planner cannot choose another index.
CREATE INDEX outputs_approved_by_job
    ON outputs (group_id, (CAST(CASE WHEN approved THEN job_id END AS BIGINT)), seq)
    WHERE CAST(CASE WHEN approved THEN job_id END AS BIGINT) IS NOT NULL;

-- Removals from the approved view, in the change order.
CREATE TABLE view_tombstones (
    organization_id BIGINT NOT NULL,
    group_id        BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    id              BIGINT NOT NULL,
    identity        BYTEA  NOT NULL,
    job_name        TEXT   NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
);
