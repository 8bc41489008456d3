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
