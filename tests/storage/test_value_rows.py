"""An INSERT of several rows of values, which Citus sends to one shard."""

from __future__ import annotations

from gleanery.service.resources.audit import log
from gleanery.service.storage import group_lock
from gleanery.service.storage.postgres.citus import statements

_JOBS = "INSERT INTO jobs (organization_id, name, state) VALUES ($1, $2, $3) RETURNING id"


def test_sets_of_values_are_grouped() -> None:
    sets = [(7, f"job {number}", number) for number in range(150)]
    inserts, rest = statements.split_into_rows(_JOBS, sets)
    assert [(len(insert.values) - 1) // 2 for insert in inserts] == [64, 64, 16, 4]
    assert rest == sets[148:]
    values = [value for insert in inserts for value in insert.values[1:]]
    assert values == [value for one in sets[:148] for value in one[1:]]
    assert {insert.values[0] for insert in inserts} == {7}


def test_the_organization_is_one_parameter() -> None:
    [insert], _ = statements.split_into_rows(_JOBS, [(7, "a", 1)] * 4)
    assert " ".join(insert.sql.split()) == (
        "INSERT INTO jobs (organization_id, name, state) VALUES "
        "($1, $2, $3), ($1, $4, $5), ($1, $6, $7), ($1, $8, $9) RETURNING id"
    )


def test_a_row_that_two_sets_change_needs_two_statements() -> None:
    sets = [(7, 1, "Germany", 1)] * 4
    assert statements.split_into_rows(group_lock._SAVE_COUNTRY, sets) == ((), sets)
    positions = [(7, 1000)] * 4
    assert statements.split_into_rows(log._NEXT_ID, positions) == ((), positions)
    others = [(7, 1, country, 1) for country in ("Germany", "France", "Japan", "India")]
    assert len(statements.split_into_rows(group_lock._SAVE_COUNTRY, others)[0]) == 1


def test_sets_of_two_organizations_need_two_statements() -> None:
    sets = [(7, "a", 1), (8, "b", 1)] * 4
    assert statements.split_into_rows(_JOBS, sets) == ((), sets)


def test_a_statement_without_the_organization_is_not_changed() -> None:
    sets = [("a", 1)] * 4
    insert = "INSERT INTO metadata (name, value) VALUES ($1, $2)"
    assert statements.split_into_rows(insert, sets) == ((), sets)
    update = "UPDATE jobs SET name = $2 WHERE organization_id = $1"
    assert statements.split_into_rows(update, sets) == ((), sets)
