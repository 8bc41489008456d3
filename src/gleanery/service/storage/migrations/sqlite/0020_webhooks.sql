-- compatible from schema 19
-- Webhooks: endpoints, their secrets and headers, the events that wait for them, and the positions of
-- doorbells. A program that does not know them stores no events. It does not re-encrypt their secrets
-- and headers either, so keys must not be rotated during the upgrade.

-- Webhooks: addresses that get events. An endpoint is disabled by the service, and enabled by a person.
CREATE TABLE webhooks (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id   INTEGER NOT NULL,
    webhook_id        TEXT    NOT NULL,             -- id in the API
    url               TEXT    NOT NULL,
    events            TEXT    NOT NULL,             -- names, each between two spaces
    group_ids         TEXT,                         -- JSON array of names; null: all groups
    description       TEXT    NOT NULL,
    format            TEXT    NOT NULL,
    header_names      TEXT    NOT NULL,             -- JSON array, as the client wrote them
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    disabled_at       INTEGER,
    disabled_reason   TEXT,
    failures          INTEGER NOT NULL DEFAULT 0,   -- failed attempts since the last success
    failing_since     INTEGER,                      -- the first of them
    failed_at         INTEGER,                      -- the last of them
    resume_at         INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX webhooks_by_webhook_id ON webhooks (organization_id, webhook_id);

-- The secrets that sign the events of an endpoint; an old one until it expires.
CREATE TABLE webhook_secrets (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id   INTEGER NOT NULL,
    webhook_id        TEXT    NOT NULL,
    secret_id         TEXT    NOT NULL,
    identity          BLOB    NOT NULL,
    encrypted_value   BLOB    NOT NULL,
    created_at        INTEGER NOT NULL,
    expires_at        INTEGER
) STRICT;

CREATE INDEX webhook_secrets_of_webhook ON webhook_secrets (organization_id, webhook_id, id);

-- The headers that go with the events of an endpoint: their names in lower case, and their values.
CREATE TABLE webhook_headers (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id   INTEGER NOT NULL,
    webhook_id        TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    identity          BLOB    NOT NULL,
    encrypted_value   BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX webhook_headers_by_name ON webhook_headers (organization_id, webhook_id, name);

-- Events for an endpoint: those that wait, and for some time those that were delivered or failed. A
-- doorbell says that a group has changed; seq is its position then.
CREATE TABLE webhook_deliveries (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    organization_id   INTEGER NOT NULL,
    webhook_id        INTEGER NOT NULL,
    delivery_id       TEXT    NOT NULL,             -- delivery_id in the API, webhook-id in the request
    event             TEXT    NOT NULL,
    body              TEXT    NOT NULL,
    group_id          INTEGER,                      -- of a doorbell
    seq               INTEGER,                      -- of a doorbell
    status            TEXT    NOT NULL,             -- waiting, delivered or failed
    created_at        INTEGER NOT NULL,
    attempt_count     INTEGER NOT NULL DEFAULT 0,   -- position in the schedule
    next_attempt_at   INTEGER NOT NULL,
    attempts          TEXT    NOT NULL DEFAULT '[]'
) STRICT;

CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook_id, id)
    WHERE status = 'waiting';
CREATE INDEX webhook_deliveries_of_group ON webhook_deliveries (webhook_id, group_id)
    WHERE group_id IS NOT NULL;
CREATE INDEX webhook_deliveries_by_id ON webhook_deliveries (delivery_id, organization_id);
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (created_at);

-- The position of the last doorbell that an endpoint has accepted, for each group.
CREATE TABLE webhook_positions (
    organization_id   INTEGER NOT NULL,
    webhook_id        INTEGER NOT NULL,
    group_id          INTEGER NOT NULL,
    seq               INTEGER NOT NULL,
    PRIMARY KEY (organization_id, webhook_id, group_id)
) STRICT, WITHOUT ROWID;
