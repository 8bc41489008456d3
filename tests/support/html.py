"""HTML pages for tests: a tree of elements, made by a parser that accepts no unclosed element."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

_VOID = {"br", "input", "link", "meta", "wbr"}


class Element:
    """Element with its attributes and children."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []

    def walk(self) -> Iterator[Element]:
        """Yields this element and all elements in it."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find(self, tag: str, **attributes: str) -> Element:
        """Returns the only element with this tag and these attributes."""
        [found] = self.find_all(tag, **attributes)
        return found

    def find_all(self, tag: str, **attributes: str) -> list[Element]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}.items()
        return [one for one in self.walk() if one.tag == tag and wanted <= one.attributes.items()]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), self.get_starttag_text()
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, (self.open[-1].tag, tag, self.getpos())
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse_html(text: str) -> Element:
    """Parses a page in which every element is closed where it was opened."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert parser.open == [parser.root], "unclosed element"
    return parser.root
