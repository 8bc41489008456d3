"""Baseline service as a typical team writes it: FastAPI, SQLAlchemy ORM, response models."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict
from sqlalchemy import JSON, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

TOKEN = "baseline"


class Base(DeclarativeBase):
    pass


class Output(Base):
    __tablename__ = "outputs"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(index=True)
    source_url: Mapped[str] = mapped_column(index=True)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    tags: Mapped[dict[str, Any]] = mapped_column(JSON)


class OutputResponse(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int
    job_id: str
    source_url: str
    data: dict[str, Any]
    tags: dict[str, Any]


class Page(BaseModel):
    next_cursor: int | None
    items: list[OutputResponse]


engine = create_engine(
    f"sqlite:///{os.environ.get('BENCH_DATABASE', '')}", connect_args={"check_same_thread": False}
)
create_session = sessionmaker(engine)
app = FastAPI()
bearer = HTTPBearer()


def database_session() -> Any:
    with create_session() as session:
        yield session


def authenticate(credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> None:
    if credentials.credentials != TOKEN:
        raise HTTPException(401)


@app.get("/outputs", response_model=Page, dependencies=[Depends(authenticate)])
def list_outputs(
    session: Annotated[Session, Depends(database_session)],
    cursor: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> Any:
    query = select(Output).where(Output.id > cursor).order_by(Output.id).limit(limit + 1)
    rows = list(session.scalars(query))
    next_cursor = rows[limit - 1].id if len(rows) > limit else None
    return {"next_cursor": next_cursor, "items": rows[:limit]}
