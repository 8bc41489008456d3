-- Deletions, long work in steps, settings and counts of groups.

ALTER TABLE groups ADD COLUMN purged       BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN deleted      BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE groups ADD COLUMN outputs      BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN display_name TEXT;
ALTER TABLE groups ADD COLUMN key_fields   TEXT;
ALTER TABLE groups ADD COLUMN schema       TEXT;
ALTER TABLE groups ADD COLUMN retain_days  BIGINT;

ALTER TABLE jobs ADD COLUMN outputs  BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN approved BIGINT  NOT NULL DEFAULT 0;

CREATE TABLE countries (
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    country         TEXT    NOT NULL,
    outputs         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, group_id, country)
);

CREATE TABLE tombstones (
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    seq             BIGINT  NOT NULL,
    id              BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    job             TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
);

CREATE TABLE chores (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id BIGINT  NOT NULL,
    group_id        BIGINT  NOT NULL,
    job_id          BIGINT,
    kind            TEXT    NOT NULL,
    until           BIGINT  NOT NULL,
    done            BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, id)
);

CREATE INDEX chores_of_group ON chores (organization_id, group_id, id);

CREATE TABLE requests (
    organization_id BIGINT  NOT NULL,
    identity        BYTEA   NOT NULL,
    content         BYTEA   NOT NULL,
    answer          TEXT    NOT NULL,
    created         BIGINT  NOT NULL,
    PRIMARY KEY (organization_id, identity)
);

CREATE INDEX requests_by_age ON requests (created);

CREATE INDEX reviews_of_group ON reviews (group_id, id);
CREATE INDEX reviews_of_job   ON reviews (group_id, job_id);

-- What was there before counts were kept.
UPDATE groups SET outputs =
    (SELECT count(*) FROM outputs WHERE outputs.group_id = groups.id);
UPDATE jobs SET
    outputs = (SELECT count(*) FROM outputs
               WHERE outputs.group_id = jobs.group_id AND outputs.job_id = jobs.id),
    approved = (SELECT count(*) FROM outputs
                WHERE outputs.group_id = jobs.group_id AND outputs.job_id = jobs.id AND approved);
INSERT INTO countries
SELECT organization_id, group_id, country, count(*) FROM outputs
WHERE country IS NOT NULL GROUP BY organization_id, group_id, country;
