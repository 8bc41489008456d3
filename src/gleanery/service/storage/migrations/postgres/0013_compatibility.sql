-- compatible from schema 13
-- The schema of the oldest program that can go on after the migration. A program that does not have
-- the migration reads it. Null for the migrations before this one: no older program can go on.
ALTER TABLE migrations ADD COLUMN compatible_from INTEGER;
