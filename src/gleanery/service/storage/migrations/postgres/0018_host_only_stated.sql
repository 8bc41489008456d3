-- compatible from schema 17
-- Whether a client has said if a cookie is host-only. A list leaves out only those that are said to be.
-- The rows of an older program have the default, so they are listed as it lists them.
ALTER TABLE cookies ADD COLUMN host_only_stated BOOLEAN NOT NULL DEFAULT FALSE;
