"""What a translation into Chinese is held to, in notebooks and on pages: numbers, and Chinese."""

from __future__ import annotations

import re
from collections import Counter

HAN = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
# Of the characters and foreign words of a paragraph: names of passes and tools stay English.
LEAST_CHINESE = 0.5


def without_code(text: str) -> str:
    """Return Markdown without its blocks of code and its names of things."""
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)


def numbers(text: str) -> Counter[str]:
    """Count the numbers in digits that a text has, in English or in Chinese."""
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", without_code(text)))


def not_chinese(text: str) -> list[str]:
    """Return the paragraphs, items and rows of a translation that are not in Chinese.

    Titles of papers stay as they are: what is under "Further reading" is not looked at. Neither is
    what is nothing but code, numbers, addresses or a name.
    """
    text = without_code(text).partition("## 延伸阅读")[0]
    text = re.sub(r"\]\([^)]*\)|https?://\S+|<[^>]*>", "", text)
    found = []
    for part in re.split(r"\n\s*\n|^[-|]", text, flags=re.MULTILINE):
        chinese = len(re.findall(r"[\u4e00-\u9fff]", part))
        foreign = len(re.findall(r"[A-Za-z][\w.+-]*", part))
        if foreign > 1 and chinese < LEAST_CHINESE * (chinese + foreign):
            found.append(part.strip())
    return found
