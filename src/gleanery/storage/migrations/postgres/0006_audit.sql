-- The audit log, which is only ever added to.

CREATE TABLE audit (
    organization_id BIGINT  NOT NULL,
    id              BIGINT  NOT NULL,             -- its moment, or one more than the one before
    token_id        BIGINT,                       -- null: the command line
    request_id      TEXT,
    action          TEXT    NOT NULL,
    about           TEXT    NOT NULL,             -- JSON, without any value
    PRIMARY KEY (organization_id, id)
);

CREATE TABLE audit_clocks (                       -- the newest id; its lock is that of the log
    organization_id BIGINT  NOT NULL PRIMARY KEY,
    clock           BIGINT  NOT NULL
);

CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.id <= (extract(epoch FROM now()) - 30 * 86400) * 1000000 THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'an entry of the audit log stays for 30 days at least';
    END IF;
    RAISE EXCEPTION 'the audit log is only ever added to';
END $$;

CREATE TRIGGER audit_never_changed BEFORE UPDATE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE TRIGGER audit_not_removed BEFORE DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_stays();
