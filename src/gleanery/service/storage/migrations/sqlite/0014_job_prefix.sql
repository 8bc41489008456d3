-- compatible from schema 14
-- The outputs of a new group have identities that begin with bytes of the group and of the job
-- (identity_format 2). This changes no table. A program that does not know the format would store
-- outputs twice, so it must not write any more, and the number of this migration prevents that.
SELECT 1;  -- a script needs a statement
