#!/bin/sh
# Scrape the shop, check its alerts, and copy the changes. A failed step is tried three times.
# GLEANERY_URL and GLEANERY_TOKEN, or gleanery login, say where the service is.
set -eu
cd "$(dirname "$0")"
PATH="$PWD/venv/bin:$PATH"

retry() {
    for attempt in 1 2 3; do
        echo "$(date -u +%FT%TZ) attempt $attempt: $*"
        if "$@"; then return 0; fi
        test "$attempt" = 3 || sleep "${RETRY_SECONDS:-300}"
    done
    echo "$(date -u +%FT%TZ) failed three times: $*"
    return 1
}

# Scrapy ends with 0 although it stored nothing, so a run counts only after its check.
scrape() {
    timeout --foreground 3h scrapy crawl shop -s GLEANERY_GROUP=daily-prices &&
        gleanery check daily-prices shop
}

retry scrape
retry gleanery pull daily-prices -o copy --quiet
