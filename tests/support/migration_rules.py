"""Rules for migrations beside which older programs go on."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_CREATE_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) ?\(")
_CREATE_INDEX = re.compile(r"CREATE (UNIQUE )?INDEX (?:IF NOT EXISTS )?\w+ ON (\w+) ?\(")
_ADD_COLUMN = re.compile(r"ALTER TABLE \w+ ADD COLUMN (?!.*, ?ADD )(.*)")
_INSERT = re.compile(r"INSERT INTO (\w+)")
_CONSTRAINT = re.compile(r"\b(?:UNIQUE|PRIMARY KEY)\b")
_KEEPS_DELETIONS = re.compile(r"REFERENCES(?!.*ON DELETE (?:CASCADE|SET NULL))")


def not_additive(sql: str) -> list[str]:
    """Returns the statements after which the writes of an older program could fail or be wrong.

    Allowed are new tables, indexes, columns that older programs need not fill, and rows of the new
    tables.
    """
    statements = [" ".join(part.split()) for part in _COMMENT.sub(" ", sql).split(";")]
    new_tables = {match[1] for one in statements if (match := _CREATE_TABLE.match(one))}
    return [one for one in statements if one and not _is_additive(one, new_tables)]


def _is_additive(statement: str, new_tables: set[str]) -> bool:
    if _KEEPS_DELETIONS.search(statement):
        return False
    if match := _CREATE_INDEX.match(statement):
        return not match[1] or match[2] in new_tables
    if match := _ADD_COLUMN.match(statement):
        needs_value = "NOT NULL" in match[1] and "DEFAULT" not in match[1]
        return not needs_value and not _CONSTRAINT.search(match[1])
    if match := _INSERT.match(statement):
        return match[1] in new_tables
    return _CREATE_TABLE.match(statement) is not None
