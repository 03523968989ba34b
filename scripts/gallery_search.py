"""How the site's search takes Chinese apart, which has no spaces: by pairs of characters.

Sphinx wants jieba and its dictionary for that; without them a run of Chinese is found only as a
whole, from one punctuation mark to the next. With pairs, what is looked for is found in the middle
of a sentence: a page that has all pairs of a query nearly always has the query.
"""

from __future__ import annotations

import re

from sphinx.search.en import SearchEnglish

CHINESE = "[\u4e00-\u9fff]"
RUN = re.compile(f"({CHINESE}+)")


class SearchChinese(SearchEnglish):
    """Pairs of Chinese characters; what stands between them as in English."""

    lang = "zh"  # its name stays English's, which is that of the stemmer in the browser
    # The same as `split`, for the query.
    js_splitter_code = r"""
var splitQuery = (query) =>
  (query.replace(/([\u4e00-\u9fff]+)/g, " $1 ").match(/[\p{Letter}\p{Number}_]+/gu) || [])
    .flatMap((run) =>
      /^[\u4e00-\u9fff]{2}/.test(run)
        ? Array.from({ length: run.length - 1 }, (_, at) => run.slice(at, at + 2))
        : [run]);
"""

    def split(self, input: str) -> list[str]:
        """Return the words of a text."""
        words = []
        for run in super().split(RUN.sub(r" \1 ", input)):
            pairs = re.match(f"{CHINESE}{{2}}", run)
            words += [run[at : at + 2] for at in range(len(run) - 1)] if pairs else [run]
        return words
