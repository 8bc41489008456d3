"""Countries and regions: maps common spellings to one comparable key."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from gleanery.common import suggestions

REGION_PATTERN = r"^[A-Za-z]{2}-[A-Za-z0-9]{1,3}$"
"""An ISO 3166-2 code: two letters for the country, a hyphen, one to three letters or digits."""

MAX_COUNTRY_LENGTH = 100
_MAX_REGION_LENGTH = len("XX-XXX")

_REGION = re.compile(REGION_PATTERN.removeprefix("^").removesuffix("$"), re.ASCII)

# A code that ISO 3166-1 leaves to its users, and that most of them use for this country.
_USER_ASSIGNED = {"XK": ["XKX", "Kosovo", "Republic of Kosovo"]}

# Common names that are not in ISO 3166-1. The names of the standard come from pycountry.
_ALIASES = {
    "AE": ["UAE", "Emirates"],
    "AX": ["Åland"],
    "BA": ["Bosnia"],
    "BN": ["Brunei"],
    "BQ": ["Caribbean Netherlands", "Bonaire"],
    "CC": ["Cocos Islands", "Keeling Islands"],
    "CD": [
        "DR Congo",
        "DRC",
        "Congo (DRC)",
        "Congo-Kinshasa",
        "Democratic Republic of the Congo",
        "Democratic Republic of Congo",
    ],
    "CG": ["Republic of the Congo", "Congo, Republic of the", "Congo-Brazzaville"],
    "CI": ["Ivory Coast"],
    "CN": ["PRC", "PR China", "Mainland China"],
    "CV": ["Cape Verde"],
    "CZ": ["Czech Republic"],
    "FK": ["Falkland Islands", "Falklands"],
    "FM": ["Micronesia"],
    "GB": ["UK", "Great Britain", "Britain"],
    "GS": ["South Georgia", "South Georgia and South Sandwich Islands"],
    "HK": ["Hong Kong SAR", "Hong Kong SAR China"],
    "HM": ["Heard and McDonald Islands"],
    "IE": ["Republic of Ireland", "Éire"],
    "IR": ["Iran"],
    "KP": ["North Korea", "Korea, North", "DPRK"],
    "KR": ["South Korea", "Korea, South", "Korea", "ROK", "Republic of Korea"],
    "LA": ["Laos", "Lao PDR"],
    "MD": ["Moldova"],
    "MF": ["Saint Martin"],
    "MK": ["Macedonia", "FYROM", "Former Yugoslav Republic of Macedonia"],
    "MM": ["Burma", "Myanmar (Burma)"],
    "MO": ["Macau", "Macao SAR", "Macau SAR", "Macao SAR China"],
    "NL": ["Holland"],
    "PN": ["Pitcairn Islands"],
    "PS": ["Palestine", "Palestinian Territories", "Palestinian Territory"],
    "RU": ["Russia"],
    "SA": ["KSA"],
    "SH": ["Saint Helena"],
    "SJ": ["Svalbard"],
    "SX": ["Sint Maarten"],
    "SY": ["Syria"],
    "SZ": ["Swaziland"],
    "TC": ["Turks and Caicos"],
    "TL": ["East Timor"],
    "TR": ["Turkey", "Turkiye"],
    "TW": ["Republic of China", "Chinese Taipei"],
    "US": ["USA", "United States of America", "America"],
    "VA": ["Vatican", "Vatican City", "Vatican City State", "Holy See"],
    "VG": ["British Virgin Islands", "BVI"],
    "VI": ["US Virgin Islands", "United States Virgin Islands"],
    "VN": ["Vietnam"],
}


def country_key(name: str) -> str | None:
    """Return the ISO code of a country, or the case-folded name if the country is unknown.

    Return None for a name that no filter can match: empty, too long, or with a NUL character.
    """
    return _country_key(name) if len(name) <= MAX_COUNTRY_LENGTH else None


@lru_cache(maxsize=4096)  # the length check above bounds its memory
def _country_key(name: str) -> str | None:
    if not name or "\0" in name:
        return None
    return _codes_by_name().get(_normalize(name)) or name.casefold()


def is_known(name: str) -> bool:
    """Return True if a name, a code or an alias is of a country."""
    return len(name) <= MAX_COUNTRY_LENGTH and _normalize(name) in _codes_by_name()


def closest_country(name: str) -> str | None:
    """Return the name of the country that a misspelled name most likely means."""
    import pycountry

    codes = _codes_by_name()
    similar = suggestions.closest(_normalize(name), codes)
    if similar is None:
        return None
    country = pycountry.countries.get(alpha_2=codes[similar])
    return country.name if country else codes[similar]


def region_key(code: str) -> str | None:
    """Return the code in upper case, or None if it is not an ISO 3166-2 code.

    White space around the code does not count, as with a country.
    """
    code = code.strip()
    return _region_key(code) if len(code) <= _MAX_REGION_LENGTH else None


@lru_cache(maxsize=4096)
def _region_key(code: str) -> str | None:
    return code.upper() if _REGION.fullmatch(code) else None


@cache
def _codes_by_name() -> dict[str, str]:
    import pycountry  # imported on first use: it would slow down the start of the service

    codes = {
        _normalize(name): code for code, names in _USER_ASSIGNED.items() for name in (code, *names)
    }
    for country in pycountry.countries:
        names = [country.alpha_2, country.alpha_3, country.name]
        names += [getattr(country, kind, "") for kind in ("common_name", "official_name")]
        names += _ALIASES.get(country.alpha_2, [])
        codes.update({_normalize(name): country.alpha_2 for name in names if name})
    return codes


def _normalize(name: str) -> str:
    """Remove case, accents, punctuation, a leading article and extra spaces.

    A change of this function changes the keys of stored outputs, so it needs a migration.
    """
    bare = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    bare = bare.casefold().replace("&", " and ").replace("’", "'").replace(".", "")
    words = bare.replace("-", " ").split()
    if words[:1] == ["the"]:
        words = words[1:]
    return " ".join("saint" if word == "st" else word for word in words)
