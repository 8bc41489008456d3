-- Finds the outputs of a group that are approved, or those that are not, in the change order.
CREATE INDEX outputs_by_approval ON outputs (group_id, approved, seq);
