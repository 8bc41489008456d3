"""The tap: its settings and its streams, the outputs and the runs of the configured groups."""

from __future__ import annotations

import sys
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from requests import RequestException, Response
from singer_sdk import RESTStream, Stream, Tap
from singer_sdk import typing as th
from singer_sdk.authenticators import BearerTokenAuthenticator
from singer_sdk.exceptions import FatalAPIError, RetriableAPIError
from singer_sdk.helpers.types import Context
from singer_sdk.pagination import BaseHATEOASPaginator

_EXPIRED = (
    "The saved cursor of the group {group} has expired, because deletions after it are no longer "
    "known or the service was restored. Remove the rows of this group from the destination and its "
    "bookmark from the state, and run again."
)
_UNKNOWN = "The organization of the token has no group {group}. Correct group_ids in the settings."
_NEW_TOKEN = "Create a token with the scope outputs:read, and correct token in the settings."
_SENTENCES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: f"The service does not know the token, or it is expired. {_NEW_TOKEN}",
    HTTPStatus.FORBIDDEN: f"The token lacks the scope outputs:read. {_NEW_TOKEN}",
    HTTPStatus.NOT_FOUND: _UNKNOWN,
    HTTPStatus.GONE: _EXPIRED,
}
_UNREACHABLE = "The service cannot be reached. Start it, or correct base_url in the settings"


class NextUrlPaginator(BaseHATEOASPaginator):
    """Follows ``metadata.next_url``, which is null on the last page."""

    def get_next_url(self, response: Response) -> str | None:
        metadata: dict[str, Any] = response.json().get("metadata", {})
        next_url: str | None = metadata.get("next_url")
        return next_url


class GroupStream(RESTStream[Any]):
    """Stream with a partition for each group."""

    @property
    def url_base(self) -> str:
        return str(self.config["base_url"]).rstrip("/")

    @property
    def authenticator(self) -> BearerTokenAuthenticator:
        return BearerTokenAuthenticator(token=self.config["token"])

    @property
    def partitions(self) -> list[dict[str, str]]:
        """One partition for each group, with its own state."""
        return [{"group_id": group} for group in self.config["group_ids"]]

    def get_url(self, context: Context | None) -> str:
        """Encode the whole ``group_id``. The SDK encodes only its slashes."""
        group = quote((context or {})["group_id"], safe="")
        return f"{self.url_base}{self.path}".replace("{group_id}", group)

    def get_new_paginator(self) -> NextUrlPaginator:
        return NextUrlPaginator()

    def get_url_params(self, context: Context | None, next_page_token: Any) -> dict[str, Any]:
        if next_page_token is not None:
            return dict(parse_qsl(next_page_token.query))
        return {"limit": self.config["page_size"]}

    def validate_response(self, response: Response) -> None:
        sentence = _SENTENCES.get(response.status_code)
        if sentence is not None:
            group = unquote(urlsplit(response.url).path.rpartition("/")[2])
            raise FatalAPIError(sentence.format(group=group))
        super().validate_response(response)

    def response_error_message(self, response: Response) -> str:
        """Return one line for another error. The SDK's message has line breaks and headers."""
        content = " ".join(response.text.split())
        return f"The service responded with the status {response.status_code}: {content}"


class OutputsStream(GroupStream):
    """Changes of the outputs of each group. The bookmark of a group is its last cursor."""

    name = "outputs"
    path = "/v1/changes/{group_id}"
    records_jsonpath = "$.changes[*]"
    primary_keys = ("group_id", "output_id")
    replication_key = "cursor"
    is_sorted = True
    schema = th.PropertiesList(
        th.Property("group_id", th.StringType, required=True),
        th.Property("output_id", th.StringType, required=True),
        th.Property("cursor", th.IntegerType, required=True),
        th.Property("change", th.StringType(allowed_values=["create", "update", "delete"])),
        th.Property("change_date", th.DateTimeType),
        th.Property("_sdc_deleted_at", th.DateTimeType),
        th.Property("reason", th.StringType),
        th.Property("id", th.IntegerType),
        th.Property("root_job_id", th.StringType),
        th.Property("source_url", th.StringType),
        th.Property("data", th.ObjectType(additional_properties=True)),
        th.Property("tags", th.ObjectType(additional_properties=True)),
        th.Property("files", th.ArrayType(th.ObjectType(additional_properties=True))),
        th.Property("is_approved", th.BooleanType),
        th.Property("key_hash", th.StringType),
        th.Property("value_hash", th.StringType),
        th.Property("create_date", th.DateTimeType),
        th.Property("update_date", th.DateTimeType),
        th.Property("last_scraped_date", th.DateTimeType),
    ).to_dict()

    def get_url_params(self, context: Context | None, next_page_token: Any) -> dict[str, Any]:
        parameters = super().get_url_params(context, next_page_token)
        if next_page_token is None:
            parameters["cursor"] = self.get_starting_replication_key_value(context) or 0
        return parameters

    def post_process(self, row: dict[str, Any], context: Context | None = None) -> dict[str, Any]:
        """Make one row of a change and its output."""
        output = row.pop("output")
        deleted_at = row["change_date"] if row["change"] == "delete" else None
        return {**output, **row, "_sdc_deleted_at": deleted_at}


class RunsStream(GroupStream):
    """Runs of the jobs of each group. All are read: even one that has ended can change later."""

    name = "runs"
    path = "/v1/runs/{group_id}"
    records_jsonpath = "$.runs[*]"
    primary_keys = ("group_id", "run_id")
    schema = th.PropertiesList(
        th.Property("group_id", th.StringType, required=True),
        th.Property("run_id", th.StringType, required=True),
        th.Property("job_id", th.StringType),
        th.Property("status", th.StringType),
        th.Property("start_date", th.DateTimeType),
        th.Property("finish_date", th.DateTimeType),
        th.Property("message", th.StringType),
        th.Property("labels", th.ObjectType(additional_properties=th.StringType)),
        th.Property("is_implicit", th.BooleanType),
        th.Property("counts", th.ObjectType(additional_properties=th.IntegerType)),
        th.Property("comparison", th.StringType),
        th.Property("removal", th.StringType),
        th.Property("removable", th.IntegerType),
    ).to_dict()

    def validate_response(self, response: Response) -> None:
        """Accept a deleted group, which has no runs. Its outputs are read: they are deletions."""
        if response.status_code != HTTPStatus.NOT_FOUND:
            super().validate_response(response)


class TapGleanery(Tap):
    """Reads the outputs of groups, then only their changes and deletions, and their runs."""

    name = "tap-gleanery"
    config_jsonschema = th.PropertiesList(
        th.Property(
            "base_url", th.StringType, required=True, description="Address of the service."
        ),
        th.Property(
            "token",
            th.StringType,
            required=True,
            secret=True,
            description="Token with the scope outputs:read.",
        ),
        th.Property(
            "group_ids",
            th.ArrayType(th.StringType),
            required=True,
            description="The group_id of each group to read.",
        ),
        th.Property("page_size", th.IntegerType, default=1000, description="Changes per request."),
    ).to_dict()

    @classmethod
    def invoke(cls, **options: Any) -> None:
        """Run the tap. A request that fails ends it with one line that says why."""
        try:
            super().invoke(**options)
        except (FatalAPIError, RetriableAPIError) as error:
            cls.logger.error("%s", error)  # without the traceback, which would hide it
            sys.exit(1)
        except RequestException as error:
            cls.logger.error("%s: %s", _UNREACHABLE, error)
            sys.exit(1)

    def discover_streams(self) -> list[Stream]:
        return [OutputsStream(self), RunsStream(self)]
