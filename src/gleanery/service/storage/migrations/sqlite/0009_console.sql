-- Sessions of the console, links that create them, and the name of a reviewer.

-- Sessions of the console. A session has the rights of its token and ends with it.
CREATE TABLE console_sessions (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    token_id        INTEGER NOT NULL REFERENCES tokens (id),
    digest          BLOB    NOT NULL UNIQUE,      -- SHA-256 of the cookie and the key together
    person          TEXT    NOT NULL,             -- name for reviews and the audit log
    created_at      INTEGER NOT NULL,
    confirmed_at    INTEGER NOT NULL,             -- when the person last proved to have the token
    last_used_at    INTEGER NOT NULL              -- updated every few minutes
) STRICT;

CREATE INDEX console_sessions_of_token ON console_sessions (organization_id, token_id);

-- Links that create one session each.
CREATE TABLE login_links (
    digest          BLOB    PRIMARY KEY,          -- SHA-256; the link itself is not stored
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    token_id        INTEGER NOT NULL REFERENCES tokens (id),
    person          TEXT,                         -- null: the person gives a name at the login
    expires_at      INTEGER NOT NULL
) STRICT;

ALTER TABLE reviews ADD COLUMN person TEXT;

CREATE INDEX tokens_of_organization ON tokens (organization_id, id) WHERE revoked_at IS NULL;
-- Jobs that wait for a review, and positions of approvals.
ALTER TABLE jobs ADD COLUMN waits_since INTEGER;
ALTER TABLE jobs ADD COLUMN approved_seq INTEGER;

-- A job that was sent back waits again if an output has a newer value.
UPDATE jobs SET waits_since = (
    SELECT version_seq FROM outputs
    WHERE outputs.group_id = jobs.group_id AND outputs.job_id = jobs.id
    ORDER BY seq DESC LIMIT 1)
WHERE output_count > approved_count AND NOT EXISTS (
    SELECT 1 FROM reviews
    WHERE reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
        AND status IN ('changes_requested', 'rejected')
        AND created_at >= (
            SELECT max(version_seq) FROM outputs
            WHERE outputs.group_id = jobs.group_id AND outputs.job_id = jobs.id));

UPDATE jobs SET approved_seq = (
    SELECT coalesce(as_of, created_at) FROM reviews
    WHERE reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
        AND status = 'approved');

CREATE INDEX jobs_waiting ON jobs (organization_id, waits_since, id) WHERE waits_since IS NOT NULL;

-- Numbers of groups for the console.
ALTER TABLE groups ADD COLUMN approved_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN daily_changes TEXT;

UPDATE groups SET approved_count = coalesce((
    SELECT sum(approved_count) FROM jobs
    WHERE jobs.organization_id = groups.organization_id AND jobs.group_id = groups.id), 0);
