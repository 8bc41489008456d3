#!/bin/sh
# Scrape the shop, check the run, and copy the changes. A failed step is tried three times.
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
    start=$(date -u +%FT%TZ)
    timeout --foreground 3h scrapy crawl shop -s GLEANERY_GROUP=daily-prices &&
        python check_scrape.py daily-prices shop --since "$start" --outputs 290
}

retry scrape
retry gleanery pull daily-prices -o copy --quiet
