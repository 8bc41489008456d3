-- The outputs of a new group have identities that begin with the group's prefix, so that they are
-- neighbours in the primary key. Existing outputs keep their identities, which clients know.
ALTER TABLE groups ADD COLUMN identity_format INTEGER NOT NULL DEFAULT 0;
