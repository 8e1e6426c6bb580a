"""Encodings of text by the names that .NET and HTTP give them."""

import codecs
from functools import lru_cache
from typing import Final

from qmnode.bodies.limits import BodyError

# Where Windows means more than the standard does, its code page: it has all characters of the standard.
_OTHER_NAMES: Final = {
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "windows-31j": "cp932", "csshiftjis": "cp932",
    "gb2312": "gbk", "gb_2312-80": "gbk", "chinese": "gbk", "x-cp20936": "gbk", "big5": "cp950",
    "ks_c_5601-1987": "cp949", "euc-kr": "cp949", "korean": "cp949", "ks_c_5601": "cp949",
    "x-mac-japanese": "shift_jis", "x-euc-jp": "euc_jp", "csiso2022jp": "iso2022_jp",
    "macintosh": "mac_roman", "x-mac-greek": "mac_greek", "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-turkish": "mac_turkish", "x-mac-ce": "mac_latin2", "x-mac-icelandic": "mac_iceland",
    "iso-8859-8-i": "iso8859_8", "dos-862": "cp862", "tis-620": "cp874", "windows-874": "cp874",
    "unicode": "utf_16_le", "unicodefffe": "utf_16_be",
}  # fmt: skip
_CODE_PAGES: Final = (
    437, 720, 737, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 864, 865, 866, 869, 874, 932, 949, 950,
    *range(1250, 1259),
)  # fmt: skip
_READ: Final = frozenset(
    (
        "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "ascii", "big5hkscs", "euc_jp",
        "euc_kr", "gb18030", "gbk", "gb2312", "hz", "iso2022_jp", "iso2022_kr", "johab", "koi8-r", "koi8-u",
        "mac-cyrillic", "mac-greek", "mac-iceland", "mac-latin2", "mac-roman", "mac-turkish", "shift_jis",
        *(f"cp{page}" for page in _CODE_PAGES),
        *(f"iso8859-{part}" for part in range(1, 17)),
    )
)  # fmt: skip
"""Python's names of the codecs that decode in time that grows with the length alone."""


@lru_cache(maxsize=256)
def codec_of(name: str) -> str:
    """The name of Python's codec for an encoding. Raises BodyError if it is not read."""
    wanted = name.strip(" '\"").lower()
    for prefix in ("ibm", "x-cp", "cp-", "ibm-"):
        if wanted.startswith(prefix) and wanted.removeprefix(prefix).lstrip("0").isdecimal():
            wanted = f"cp{wanted.removeprefix(prefix).lstrip('0')}"
    try:
        found = codecs.lookup(_OTHER_NAMES.get(wanted, wanted)).name
    except (LookupError, ValueError):
        found = ""
    if found not in _READ:
        raise BodyError(f"the encoding {name!r:.60} is not read: send UTF-8 or UTF-16")
    return found
