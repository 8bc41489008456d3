"""Receive the events of a webhook, and keep a copy of a group: a receiver in Flask.

It needs ``pip install flask`` and Gleanery's client, and these variables: GLEANERY_URL,
GLEANERY_TOKEN (with the scope outputs:read), WEBHOOK_SECRET (``whsec_…``), WEBHOOK_GROUP if it is
not prices, and PORT if it is not 5000. It stores everything in copy.db and state.json, in the
folder in which it starts. Run one process of it.
"""

import json
import os
import sqlite3
import threading
from contextlib import closing

from flask import Flask, request

from gleanery import Client
from gleanery.client import ClientError, webhooks

GROUP = os.environ.get("WEBHOOK_GROUP", "prices")
SECRET = os.environ["WEBHOOK_SECRET"]
app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 64 * 1024  # an event has less than 20 kB
doorbell = threading.Event()


def open_copy() -> sqlite3.Connection:
    copy = sqlite3.connect("copy.db", timeout=10, isolation_level=None)
    copy.execute("CREATE TABLE IF NOT EXISTS outputs (id TEXT PRIMARY KEY, data TEXT)")
    copy.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, type TEXT, data TEXT)")
    return copy


@app.post("/gleanery")
def receive() -> tuple[str, int]:
    """Verify an event, store it or ring, and answer at once."""
    try:
        event = webhooks.verify(request.headers, request.get_data(), SECRET)
    except webhooks.InvalidWebhook as error:
        return str(error), 400
    if event.type == "outputs.changed":
        doorbell.set()
    else:  # an event can arrive twice, with the same id
        row = (event.id, event.type, json.dumps(event.data))
        with closing(open_copy()) as copy:
            copy.execute("INSERT OR IGNORE INTO events VALUES (?, ?, ?)", row)
    return "", 204


def follow() -> None:
    """Read the changes after each doorbell, and every ten minutes."""
    with closing(open_copy()) as copy, Client() as client:
        is_current = False
        while True:
            doorbell.wait(600 if is_current else 10)
            doorbell.clear()  # before reading: a doorbell from now on causes another reading
            try:
                read_changes(copy, client)
                is_current = True
            except ClientError as error:
                print(f"The copy is behind: {error}", flush=True)
                is_current = False


def read_changes(copy: sqlite3.Connection, client: Client) -> None:
    """Read from the stored position until there are no further changes."""
    for batch in client.sync(GROUP, "state.json"):
        copy.execute("BEGIN")
        if batch.restarted:
            copy.execute("DELETE FROM outputs")
        for output in batch.deletions:
            copy.execute("DELETE FROM outputs WHERE id = ?", [output.output_id])
        for output in batch.upserts:
            row = (output.output_id, json.dumps(output.data))
            copy.execute("REPLACE INTO outputs VALUES (?, ?)", row)
        copy.execute("COMMIT")


if __name__ == "__main__":
    doorbell.set()  # what has changed while the receiver was not running
    threading.Thread(target=follow, daemon=True).start()
    app.run(port=int(os.environ.get("PORT", "5000")))
