"""Countries and regions: the spellings people use, brought to one key that can be compared."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

REGION_FORM = r"^[A-Za-z]{2}-[A-Za-z0-9]{1,3}$"
"""ISO 3166-2: a country's two letters, a hyphen, one to three letters or digits."""

LONGEST_COUNTRY = 100
_LONGEST_REGION = len("XX-XXX")

_REGION = re.compile(REGION_FORM.removeprefix("^").removesuffix("$"), re.ASCII)

# Everyday names that ISO 3166-1 does not list; what it lists is read from pycountry.
_ALIASES = {
    "AE": ["UAE", "Emirates"],
    "BA": ["Bosnia"],
    "BN": ["Brunei"],
    "CD": [
        "DR Congo",
        "DRC",
        "Congo-Kinshasa",
        "Democratic Republic of the Congo",
        "Democratic Republic of Congo",
    ],
    "CG": ["Republic of the Congo", "Congo-Brazzaville"],
    "CI": ["Ivory Coast"],
    "CV": ["Cape Verde"],
    "CZ": ["Czech Republic"],
    "FK": ["Falkland Islands", "Falklands"],
    "FM": ["Micronesia"],
    "GB": ["UK", "Great Britain", "Britain"],
    "IR": ["Iran"],
    "KP": ["North Korea", "DPRK"],
    "KR": ["South Korea", "Korea", "ROK", "Republic of Korea"],
    "LA": ["Laos"],
    "MD": ["Moldova"],
    "MK": ["Macedonia", "FYROM"],
    "MM": ["Burma"],
    "MO": ["Macau"],
    "NL": ["Holland"],
    "PS": ["Palestine"],
    "RU": ["Russia"],
    "SY": ["Syria"],
    "SZ": ["Swaziland"],
    "TL": ["East Timor"],
    "TR": ["Turkey", "Turkiye"],
    "US": ["USA", "United States of America", "America"],
    "VA": ["Vatican", "Vatican City"],
    "VG": ["British Virgin Islands"],
    "VI": ["US Virgin Islands"],
    "VN": ["Vietnam"],
}


def country_key(name: str) -> str | None:
    """The ISO code of a country under any of its names; an unknown name stands for itself.

    None for what could never be asked for: an empty, overlong or NUL-bearing name.
    """
    return _country_key(name) if len(name) <= LONGEST_COUNTRY else None


@lru_cache(maxsize=4096)  # of short names only
def _country_key(name: str) -> str | None:
    if not name or "\0" in name:
        return None
    return _codes().get(_folded(name)) or name.casefold()


def region_key(code: str) -> str | None:
    """The code in upper case; None if it is not of the form of ISO 3166-2."""
    return _region_key(code) if len(code) <= _LONGEST_REGION else None


@lru_cache(maxsize=4096)
def _region_key(code: str) -> str | None:
    return code.upper() if _REGION.fullmatch(code) else None


@cache
def _codes() -> dict[str, str]:
    import pycountry  # here, because a service that meets no country starts the sooner without

    codes: dict[str, str] = {}
    for country in pycountry.countries:
        names = [country.alpha_2, country.alpha_3, country.name]
        names += [getattr(country, kind, "") for kind in ("common_name", "official_name")]
        names += _ALIASES.get(country.alpha_2, [])
        codes.update({_folded(name): country.alpha_2 for name in names if name})
    return codes


def _folded(name: str) -> str:
    """Without case, accents, punctuation, a leading article and needless space."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    bare = bare.casefold().replace("&", " and ").replace("’", "'").replace(".", "")
    words = bare.replace("-", " ").split()
    if words[:1] == ["the"]:
        words = words[1:]
    return " ".join("saint" if word == "st" else word for word in words)
