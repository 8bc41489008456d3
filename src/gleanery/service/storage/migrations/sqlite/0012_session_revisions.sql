-- A write of session state changes no row of organizations, a table that all tenants share.
CREATE TABLE session_revisions (
    organization_id INTEGER NOT NULL PRIMARY KEY,
    revision        INTEGER NOT NULL                  -- each write of session state increments it
) STRICT;
INSERT INTO session_revisions (organization_id, revision)
SELECT id, session_revision FROM organizations WHERE session_revision > 0;
ALTER TABLE organizations DROP COLUMN session_revision;
