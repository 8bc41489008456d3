"""Values that the examples of several resources share.

The examples tell one story: a scraper fills the group ``shop-prices``, a reviewer approves the
outputs, and a client reads them. A run that finds nothing does not remove them, because a person
decides to keep them. At the end everything is deleted. A test sends all requests to a service, one
after another, and compares the responses.
"""

from __future__ import annotations

from gleanery.service.api.operation import SERVICE_URL

GROUP_ID = "shop-prices"
JOB_ID = "example-shop"
IN_GROUP = {"group_id": GROUP_ID}
RUN_ID = "5a8f7b62c0d94e1fb6a3d2c4e5f60718"
IMPLICIT_RUN_ID = "c3d9e04b7f1a4c28a5e6b7d8091f2a3c"
SCRAPE_DATE = "2026-03-02T09:00:00Z"
REVIEW_DATE = "2026-03-02T10:30:00Z"
FIRST_CURSOR = 1772442000000001
LAST_CURSOR = 1772442000000002
LAST_PAGE = {"next_url": None, "next_cursor": None}
DELETED = {"deleted": 1}
FILE_ID = "3f2a9c1e5b7d4860a1c3e5f708192a3b"
FILE_TEXT = "Coffee, 1 kg: 18.90 EUR\n"
FILE_SOURCE = {"source_url": "https://shop.example.com/coffee.txt", "etag": '"v1"'}
STORED_FILE = {
    "id": FILE_ID,
    "blob_key": "1/8c/8c41d7e2f09b4a6e93d5b7c1a2e4f608",
    "file_checksum": "c28c5be29bb1642de58e85db432e907cdd164e10ecd558c62dcb2a383ffecc19",
    "file_type": "text/plain",
    "url_etag_hash": "0848913d7830416a6fa0fabcad3d1adadf1f97391b1c128e835706369f885b91",
    "size": len(FILE_TEXT),
}
LINK_PARAMETERS = {
    "organization": "1",
    "expires": "1772442900",
    "signature": "b1946ac92492d2347c6235b4d2611184",
}
FILE_OUT = {
    "id": FILE_ID,
    "field": "leaflet",
    "url_etag_hash": STORED_FILE["url_etag_hash"],
    "blob_key": STORED_FILE["blob_key"],
    "blob_url": f"{SERVICE_URL}/v1/blobs/{FILE_ID}?"
    + "&".join(f"{name}={value}" for name, value in LINK_PARAMETERS.items()),
    "source_url": FILE_SOURCE["source_url"],
    "create_date": SCRAPE_DATE,
    "file_url": f"{SERVICE_URL}/v1/files/{FILE_ID}",
    "file_type": "text/plain",
    "file_checksum": STORED_FILE["file_checksum"],
    "file_metadata": {"size": len(FILE_TEXT), "filename": "coffee.txt"},
}
COFFEE = {"sku": "1001", "name": "Coffee, 1 kg", "price": 18.9, "currency": "EUR"}
TEA = {"sku": "1002", "name": "Tea, 500 g", "price": 7.5, "currency": "EUR"}
TAGS = {"country": "DE", "region": "DE-BE"}
COFFEE_IN = {
    "job_id": JOB_ID,
    "source_url": "https://shop.example.com/products/1001",
    "data": COFFEE,
    "tags": TAGS,
    "files": [{"field": "leaflet", "id": FILE_ID}],
}
TEA_IN = {
    "job_id": JOB_ID,
    "source_url": "https://shop.example.com/products/1002",
    "data": TEA,
    "tags": TAGS,
}
COFFEE_OUT = {
    "source_url": COFFEE_IN["source_url"],
    "data": COFFEE,
    "id": 1041,
    "output_id": "0ef49a6bdba3560fea9254a12f02482a",
    "root_job_id": JOB_ID,
    "create_date": SCRAPE_DATE,
    "update_date": SCRAPE_DATE,
    "last_scraped_date": SCRAPE_DATE,
    "key_hash": "3e9af56092fe5b00872628085d9d294a9c6bfdd991f1938e252cb507fb7b0822",
    "value_hash": "070caf99c7158abbb4a410069624e8a764f2d0579228a2b5f5e77e4118e2069e",
    "is_approved": False,
    "tags": TAGS,
    "files": [FILE_OUT],
}
TEA_OUT = {
    "source_url": TEA_IN["source_url"],
    "data": TEA,
    "id": 1042,
    "output_id": "88d50cb16e92138c6b1131207933625d",
    "root_job_id": JOB_ID,
    "create_date": SCRAPE_DATE,
    "update_date": SCRAPE_DATE,
    "last_scraped_date": SCRAPE_DATE,
    "key_hash": "d09f110a45ad66558e98ef2bfda210a5e4faf17557d1040277c73aee86213314",
    "value_hash": "fe02b2197d41ef41f519867248a33c64a9341dafe961bd5982ae07bce46f399f",
    "is_approved": False,
    "tags": TAGS,
    "files": [],
}
REVIEW = {
    "job_id": JOB_ID,
    "review_id": "621a05235d234ebd8ec35496eb857550",
    "review_date": REVIEW_DATE,
    "status": "approved",
    "comment": "The prices match the site.",
}
GROUP_SETTINGS = {
    "display_name": "Shop prices",
    "key_fields": ["sku"],
    "retain_days": 90,
    "keep_versions": 50,
    "missing": {"after_runs": 1, "max_share": 0.3},
}
