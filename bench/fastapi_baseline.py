"""The service most people would write: FastAPI, SQLAlchemy's ORM, a response model."""

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


class OutputOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int
    job_id: str
    source_url: str
    data: dict[str, Any]
    tags: dict[str, Any]


class Page(BaseModel):
    next_cursor: int | None
    items: list[OutputOut]


engine = create_engine(
    f"sqlite:///{os.environ.get('BENCH_DATABASE', '')}", connect_args={"check_same_thread": False}
)
sessions = sessionmaker(engine)
app = FastAPI()
bearer = HTTPBearer()


def session() -> Any:
    with sessions() as made:
        yield made


def admitted(given: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> None:
    if given.credentials != TOKEN:
        raise HTTPException(401)


@app.get("/outputs", response_model=Page, dependencies=[Depends(admitted)])
def outputs(
    db: Annotated[Session, Depends(session)],
    cursor: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> Any:
    query = select(Output).where(Output.id > cursor).order_by(Output.id).limit(limit + 1)
    rows = list(db.scalars(query))
    more = rows[limit - 1].id if len(rows) > limit else None
    return {"next_cursor": more, "items": rows[:limit]}
