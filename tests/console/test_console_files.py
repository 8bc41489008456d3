"""The files of the console: their size, their imports, and what they do not use."""

from __future__ import annotations

import gzip
import posixpath
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from gleanery.service.console import assets
from tests.project.test_base_install import build_wheel
from tests.support.javascript import JsToken, tokens_of
from tests.support.process import environment

MAX_BYTES = 100 * 1024
"""It was 92 KB until the console had monitors: see docs/decisions/0192."""
FOLDER = Path(assets.__file__).parent / "browser"
SERVED = {path: asset.content.decode() for path, asset in assets.load().files.items()}
FILES = {path: content.decode() for path, content in assets.read_sources()}
MODULES = {path: text for path, text in FILES.items() if path.endswith(".js")}
OWN = {path: text for path, text in MODULES.items() if not path.startswith("vendor/")}
FORBIDDEN = {
    "HTML as text": re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|__html"
    ),
    "code as text": re.compile(r"\beval\b|new Function\b|set(?:Timeout|Interval)\(\s*[\"'`]"),
    "a style as text": re.compile(r"""\bstyle=["']|\bstyle=\$\{[`"']|cssText"""),
    "an import at run time": re.compile(r"\bimport\("),
}
_IMPORT = re.compile(
    r"^(?:import|export)\s+([^;\"']*?)\s*\bfrom\s+[\"']([^\"']+)[\"']", re.MULTILINE
)
_BARE_IMPORT = re.compile(r"^import\s+[\"']([^\"']+)[\"']", re.MULTILINE)
_EXPORT = re.compile(
    r"^export\s+(?:default\s+)?(?:async\s+)?(?:function\*?|const|let|class)\s+(\w+)", re.MULTILINE
)
_EXPORT_LIST = re.compile(r"\bexport\s*\{([^}]*)\}")
_COMMENT = re.compile(r"^\s*(?://|/?\*).*$", re.MULTILINE)


def exported_names(text: str) -> set[str]:
    """Names that a module exports: by declarations, and in lists such as ``{a as b}``."""
    names = set(_EXPORT.findall(text))
    for group in _EXPORT_LIST.findall(text):
        names |= {part.split()[-1] for part in group.split(",") if part.strip()}
    return names


def imported_names(clause: str) -> set[str]:
    """Names that an import takes. One without braces takes the default, or everything."""
    inside = re.fullmatch(r"\{(.*)\}", clause.strip(), re.DOTALL)
    assert inside, f"import {clause}: name what is imported"
    return {part.split()[0] for part in inside[1].split(",") if part.strip()}


def test_all_files_together_are_small() -> None:
    sizes = {path: len(gzip.compress(text.encode(), 9)) for path, text in SERVED.items()}
    largest = sorted(sizes.items(), key=lambda one: -one[1])[:10]
    together = len(gzip.compress("".join(SERVED.values()).encode(), 9))
    each = sum(sizes.values())  # what a browser without a cache gets
    print(f"{len(sizes)} files: {together / 1024:.1f} KB as one, {each / 1024:.1f} KB one by one")
    assert together <= MAX_BYTES, largest


def test_all_files_are_served() -> None:
    on_disk = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert on_disk == set(FILES)
    styles = {path for path in FILES if path.endswith(".css")}
    assert set(SERVED) == (on_disk - styles) | {"console.css"}
    assert [path for path in SERVED if path.count("/") > 1] == []  # the route has one folder


def test_a_later_style_sheet_can_change_an_earlier_one() -> None:
    parts = [".icon {", ".shell {", ".sparkline {", ".review-summary {"]
    places = [SERVED["console.css"].index(part.replace(" ", "")) for part in parts]
    assert places == sorted(places)


def program(text: str) -> list[JsToken]:
    """Tokens of a module. Spaces at the start of a line and before "/>" mean nothing in markup."""

    def without_spaces(markup: str) -> str:
        return re.sub(r"\n\s*", "\n", markup).replace(" />", "/>")

    return [
        one._replace(value=without_spaces(one.value)) if one.tag == "html" else one
        for one in tokens_of(text)
    ]


@pytest.mark.parametrize("path", OWN)
def test_a_served_module_is_the_same_program(path: str) -> None:
    assert program(SERVED[path]) == program(OWN[path])


def test_the_served_style_sheet_has_all_rules() -> None:
    styles = [text for path, text in FILES.items() if path.endswith(".css")]
    written = [re.sub(r"/\*[\s\S]*?\*/|\s", "", text) for text in styles]
    served = re.sub(r"\s", "", SERVED["console.css"])
    assert [text for text in written if text not in served] == []
    assert len(served) == sum(map(len, written))


def test_other_files_are_served_as_they_are() -> None:
    others = [path for path in FILES if not path.endswith((".js", ".css"))]
    assert others
    assert [path for path in others if SERVED[path] != FILES[path]] == []


def test_a_served_style_sheet_keeps_the_spaces_that_mean_something() -> None:
    source = b'.a :hover > b,\n  c d { margin: calc(1px + 2px) 0; content: "was " }\n'
    served = b'.a :hover>b,c d{margin:calc(1px + 2px) 0;content:"was "}'
    assert assets.shorten("x.css", source) == served


def test_texts_of_several_lines_are_only_in_markup() -> None:
    """Elsewhere, indentation and a line that looks like a comment are a part of a text."""
    assert [
        one.tag for one in tokens_of("a = html`1${f({})}\n2` / b`3\n`") if "\n" in one.value
    ] == [
        "html",
        "b",
    ]
    for path, text in OWN.items():
        for one in tokens_of(text):
            if "\n" in one.value:
                assert one.tag == "html", (path, one.value)
                assert not re.search(r"\n\s*/[/*]", one.value), (path, one.value)


@pytest.mark.parametrize("path", OWN)
def test_a_module_imports_names_that_exist_by_relative_paths(path: str) -> None:
    imports = [*_IMPORT.findall(OWN[path]), *(("{}", to) for to in _BARE_IMPORT.findall(OWN[path]))]
    assert len(imports) == len(re.findall(r"^import\b", OWN[path], re.MULTILINE)) + len(
        re.findall(r"^export\s*\{[^}]*\}\s*from", OWN[path], re.MULTILINE)
    )
    for clause, source in imports:
        assert source.startswith(("./", "../")), source
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), source))
        assert target in MODULES, source
        missing = imported_names(clause) - exported_names(MODULES[target])
        assert missing == set(), source


@pytest.mark.parametrize("path", OWN)
def test_a_module_uses_only_what_it_imports_or_declares_in_templates(path: str) -> None:
    """A component that is not imported is an error only when it is shown."""
    text = _COMMENT.sub("", OWN[path])
    for name in set(re.findall(r"<\$\{([A-Z]\w*)\}", text)):
        assert re.search(rf"\b(?:function|class|const|let)\s+{name}\b", text) or any(
            name in re.split(r"\W+", clause) for clause, _ in _IMPORT.findall(text)
        ), name


@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_module_has_no(path: str, what: str) -> None:
    found = FORBIDDEN[what].search(_COMMENT.sub("", OWN[path]))
    assert found is None, f"{what}: {found[0] if found else ''}"


@pytest.mark.parametrize("path", OWN)
def test_a_module_says_what_it_owns_and_is_short(path: str) -> None:
    assert OWN[path].startswith("// "), "start with one sentence that says what the module owns"
    assert OWN[path].count("\n") <= 300


def test_a_style_sheet_loads_nothing() -> None:
    for path, text in FILES.items():
        if path.endswith(".css"):
            assert not re.search(r"@import|url\(", text), path


def test_the_base_install_does_not_load_the_console() -> None:
    code = "import sys, gleanery.cli, gleanery.client; print('gleanery.service' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.extended
def test_the_wheel_contains_all_files(tmp_path: Path) -> None:
    """In one archive."""
    archive = zipfile.ZipFile(build_wheel(tmp_path)).read("gleanery/service/console/browser.zip")
    assert set(FILES) <= set(zipfile.ZipFile(BytesIO(archive)).namelist())
