-- compatible from schema 20
-- Monitors: rules of groups, what a run was like when it ended, and alerts. A program that does not know
-- them judges no runs, so the runs that it ends open no alerts.
-- The next sweep looks at all jobs, and at those that such a program creates.

ALTER TABLE groups ADD COLUMN monitors TEXT;                          -- JSON array of rules; null: the defaults
ALTER TABLE jobs ADD COLUMN run_due_at BIGINT DEFAULT 0;              -- the next look whether a run is overdue; 0: at once
ALTER TABLE runs ADD COLUMN monitoring TEXT;                          -- null, pending or done: was it judged
ALTER TABLE runs ADD COLUMN has_alert BOOLEAN NOT NULL DEFAULT FALSE; -- it is not a model for later runs
ALTER TABLE runs ADD COLUMN sample TEXT;                              -- what its values were like, if a rule asks

CREATE INDEX jobs_due ON jobs (run_due_at) WHERE run_due_at IS NOT NULL;
CREATE INDEX runs_usual ON runs (group_id, job_id, id) WHERE status = 'complete' AND NOT has_alert;

-- Alerts: open while the condition of their rule is true, and kept for some time afterwards.
CREATE TABLE alerts (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY,
    organization_id   BIGINT  NOT NULL,
    alert_id          TEXT    NOT NULL,             -- alert_id in the API
    group_id          BIGINT  NOT NULL,
    job_id            BIGINT  NOT NULL,
    kind              TEXT    NOT NULL,
    labels            TEXT    NOT NULL,             -- of the runs, if only runs with the same labels are compared
    rule              TEXT    NOT NULL,             -- JSON object
    facts             TEXT    NOT NULL,             -- JSON object
    usual             TEXT    NOT NULL,             -- JSON object: what was usual when it opened
    observed          TEXT    NOT NULL,             -- JSON object: what the last run was like
    run_id            TEXT,                         -- run that has opened it, in the API
    last_run_id       TEXT,
    last_run          BIGINT  NOT NULL,             -- number of the last run that was judged
    run_count         BIGINT  NOT NULL,             -- runs with this problem
    opened_at         BIGINT  NOT NULL,
    closed_at         BIGINT,
    close_reason      TEXT,                         -- over, normal or rule_removed
    acknowledged_at   BIGINT,
    acknowledged_by   TEXT,
    muted_until       BIGINT,
    is_silent         BOOLEAN NOT NULL DEFAULT FALSE, -- it has opened while it was muted, and nobody knows
    PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX alerts_by_alert_id ON alerts (alert_id, organization_id);
CREATE INDEX alerts_open ON alerts (organization_id, id) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_group ON alerts (group_id, id);
CREATE INDEX alerts_open_of_group ON alerts (group_id, id) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_job ON alerts (group_id, job_id, id);
CREATE INDEX alerts_open_of_job ON alerts (group_id, job_id, id) WHERE closed_at IS NULL;
