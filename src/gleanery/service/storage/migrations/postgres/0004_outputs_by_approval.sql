-- Finds the outputs of a group that are approved, or those that are not, in the change order.
CREATE INDEX outputs_by_approval ON outputs (group_id, approved, seq);

-- Like the other filters: the statistics claim that all values differ.
ALTER TABLE outputs ALTER COLUMN approved SET (n_distinct = -1);

-- Statistics from before contain the real number of values until the table is analyzed again. An
-- empty table is not analyzed: planners assume more rows in it while they know nothing.
DO $$ BEGIN
    IF (SELECT reltuples > 0 FROM pg_class WHERE oid = 'outputs'::regclass) THEN
        ANALYZE outputs (approved);
    END IF;
END $$;
