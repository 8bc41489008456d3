-- Deletions, long work in steps, settings and counts of groups.

ALTER TABLE groups ADD COLUMN purged       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN deleted      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN outputs      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN display_name TEXT;
ALTER TABLE groups ADD COLUMN key_fields   TEXT;
ALTER TABLE groups ADD COLUMN schema       TEXT;
ALTER TABLE groups ADD COLUMN retain_days  INTEGER;

ALTER TABLE jobs ADD COLUMN outputs  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN approved INTEGER NOT NULL DEFAULT 0;

CREATE TABLE countries (
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    country         TEXT    NOT NULL,
    outputs         INTEGER NOT NULL,
    PRIMARY KEY (organization_id, group_id, country)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    id              INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    job             TEXT    NOT NULL,
    PRIMARY KEY (organization_id, group_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE chores (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL,
    group_id        INTEGER NOT NULL,
    job_id          INTEGER,
    kind            TEXT    NOT NULL,
    until           INTEGER NOT NULL,
    done            INTEGER NOT NULL
) STRICT;

CREATE INDEX chores_of_group ON chores (organization_id, group_id, id);

CREATE TABLE requests (
    organization_id INTEGER NOT NULL,
    identity        BLOB    NOT NULL,
    content         BLOB    NOT NULL,
    answer          TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    PRIMARY KEY (organization_id, identity)
) STRICT, WITHOUT ROWID;

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
