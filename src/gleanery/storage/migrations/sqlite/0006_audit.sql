-- The audit log, which is only ever added to.

CREATE TABLE audit (
    organization_id INTEGER NOT NULL,
    id              INTEGER NOT NULL,             -- its moment, or one more than the one before
    token_id        INTEGER,                      -- null: the command line
    request_id      TEXT,
    action          TEXT    NOT NULL,
    about           TEXT    NOT NULL,             -- JSON, without any value
    PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_clocks (                       -- the newest id; its lock is that of the log
    organization_id INTEGER NOT NULL PRIMARY KEY,
    clock           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER audit_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END;

CREATE TRIGGER audit_not_removed BEFORE DELETE ON audit
WHEN OLD.id > (unixepoch() - 30 * 86400) * 1000000
BEGIN SELECT RAISE(ABORT, 'an entry of the audit log stays for 30 days at least'); END;
