"""A form with one file: every cut of the body gives the same bytes, and other forms are errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleanery.service.http import InvalidForm
from gleanery.service.http.content import FileForm, FileHead

TYPE = "multipart/form-data; boundary=xyz"
HEAD = b'Content-Disposition: form-data; name="file"; filename="a.pdf"'


def form(
    content: bytes = b"bytes", head: bytes = HEAD, start: bytes = b"--xyz", end: bytes = b"--xyz--"
) -> bytes:
    return start + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n" + end + b"\r\n"


def parse(pieces: Iterable[bytes], content_type: str = TYPE) -> tuple[FileHead, bytes]:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            if piece:
                yield piece

    async def run() -> tuple[FileHead, bytes]:
        parser = FileForm(content_type, chunks())
        head = await parser.head()
        return head, b"".join([chunk async for chunk in parser.content()])

    return asyncio.run(run())


@given(
    content=st.lists(
        st.sampled_from([b"a", b"\r", b"\n", b"-", b"--", b"\r\n--", b"--xy", b"\r\n--xy", b"xyz"])
    ).map(b"".join),
    size=st.integers(1, 40),
)
def test_every_cut_of_the_body_gives_the_same_bytes(content: bytes, size: int) -> None:
    if b"\r\n--xyz" in b"\r\n" + content + b"\r\n":  # no form can contain its own boundary
        return
    body = form(content)
    pieces = [body[n : n + size] for n in range(0, len(body), size)]
    assert parse(pieces)[1] == content


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        (b'form-data; name="f"; filename="a.pdf"', "a.pdf"),
        (b"form-data; name=f; filename=a.pdf", "a.pdf"),
        (b'FORM-DATA; filename="a; b.pdf"; name="f"', "a; b.pdf"),
        ('form-data; name="f"; filename="ü.pdf"'.encode(), "ü.pdf"),
        (b"form-data; name=\"f\"; filename*=utf-8''%C3%BC.pdf", "ü.pdf"),
        (b"form-data; filename=u.pdf; filename*=UTF-8'de'%C3%BC.pdf", "ü.pdf"),
        (b'form-data; name="f"; filename="C:\\dir\\a.pdf"', "C:\\dir\\a.pdf"),
        (b'form-data; name="f"; filename="a%22b.pdf"', 'a"b.pdf'),
        (b'form-data; name="f"; filename="a\\"b.pdf"', 'a"b.pdf'),
    ],
)
def test_the_file_name_of_the_part(disposition: bytes, filename: str) -> None:
    head, _ = parse([form(head=b"content-disposition: " + disposition)])
    assert head == FileHead(filename, "")


def test_the_type_of_the_part() -> None:
    body = form(head=HEAD + b"\r\nContent-Type: text/csv; charset=utf-8")
    assert parse([body])[0].content_type == "text/csv; charset=utf-8"


def test_a_quoted_boundary() -> None:
    body = form(start=b"--a b", end=b"--a b--")
    assert parse([body], 'multipart/form-data; boundary="a b"')[1] == b"bytes"


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize(("length", "is_valid"), [(8192, True), (8193, False)])
def test_the_length_of_the_headers_is_limited(size: int, length: int, is_valid: bool) -> None:
    head = HEAD + b"\r\nX: "
    body = form(head=head + b"x" * (length - len(head)))
    pieces = [body[n : n + size] for n in range(0, len(body), size)]
    if is_valid:
        assert parse(pieces)[1] == b"bytes"
        return
    with pytest.raises(InvalidForm):
        parse(pieces)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--xyz",
        b"--xyz\r\n",
        b"--xyz--\r\n",
        b"preamble\r\n" + form(),
        form(start=b"--other"),
        form(head=b"Content-Disposition: form-data; name=a"),
        form(head=b'Content-Disposition: form-data; name=a; filename=""'),
        form(head=b"Content-Disposition: attachment; filename=a"),
        form(head=b"Content-Type: text/plain"),
        form(head=HEAD + b"\r\nContent-Transfer-Encoding: base64"),
        form(head=b"Content-Disposition: form-data; filename=\xff"),
        form(head=b"Content-Disposition: form-data; filename*=x\0y''a"),
        form(head=b"Content-Disposition: form-data; filename*=utf-8''%ff"),
        form(head=b"Content-Disposition: form-data; filename*" + b"9" * 5000 + b"=a"),
        form(head=b'Content-Disposition: form-data; filename="a'),
        form(head=b"Content-Disposition: form-data; filename"),
        form(head=HEAD + b"\r\n" + HEAD),
        form(head=HEAD + b"\r\n folded"),
        form(head=HEAD + b"\r\nX: " + b"x" * 9000),
        b"--xyz\r\nX: " + b"x" * 20_000,
        form()[:-10],
        form(end=b"--xyz"),
        form(end=b"--xyz-"),
        form(end=b"--xyzw--"),
        form(end=b"--xyz\r\n" + HEAD + b"\r\n\r\nsecond\r\n--xyz--"),
        form(end=b"--xyz\r\nContent-Disposition: form-data; name=etag\r\n\r\n1\r\n--xyz--"),
        form() + b"more",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_any_other_form_is_an_error(body: bytes, size: int) -> None:
    pieces = [body[n : n + size] for n in range(0, len(body), size)]
    with pytest.raises(InvalidForm):
        parse(pieces)


@pytest.mark.parametrize("parameter", ["", "; boundary=", "; boundary=" + "x" * 71, "; boundary=ü"])
def test_a_form_needs_a_boundary(parameter: str) -> None:
    with pytest.raises(InvalidForm):
        parse([form()], "multipart/form-data" + parameter)
