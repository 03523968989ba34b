"""Where the tabulator key leads on a page, and whether one sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What can have the keyboard, as the browser says it. A hidden checkbox is seen by its label; radio
# buttons of one question are one stop, from which the arrow keys lead on.
REACHABLE = """() => {
  const all = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
  return [...document.querySelectorAll(all)].filter(it => it.tabIndex >= 0 && !it.disabled
    && (it.type !== 'radio' || it.checked)
    && it.checkVisibility({visibilityProperty: true})).length;
}"""
FOCUSED = """() => {
  const it = document.activeElement;
  if (it === document.body) return null;
  window.tvmlabOrder ??= new Map();
  if (!tvmlabOrder.has(it)) tvmlabOrder.set(it, tvmlabOrder.size);
  const marks = [it, ...(it.labels ?? [])].filter(one => {
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    return style.outlineStyle !== 'none' && style.opacity !== '0' && box.width && box.height
      && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
  });
  return {place: tvmlabOrder.get(it), name: it.outerHTML.slice(0, 120), seen: marks.length > 0};
}"""


def walk(page: Page) -> tuple[int, list[dict[str, Any]]]:
    """Press the tabulator key through a page once.

    Returns
    -------
    count : int
        How many elements of the page one should get to.
    stops : list of dict
        Where one got: the element's place among those that came up, its HTML, and whether one sees
        that it has the keyboard.
    """
    count: int = page.evaluate(REACHABLE)
    stops: list[dict[str, Any]] = []
    for _ in range(count + 1):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None or stop["place"] < len(stops):  # the page ends, or begins again
            break
        stops.append(stop)
    return count, stops
