// What screen readers say of code and of tables, in the language of the text around them.
const NAMES = { en: ["Code or output", "Table"], zh: ["代码或输出", "表格"] };

// Make wide code, outputs and tables focusable, so that the arrow keys scroll them.
function letWideBeScrolled() {
  for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
    if (wide.scrollWidth > wide.clientWidth) {
      const [code, table] = NAMES[wide.closest("[lang]").lang.slice(0, 2)];
      wide.tabIndex = 0;
      wide.setAttribute("role", "group"); // a region would be a landmark, and these are many
      wide.setAttribute("aria-label", wide.matches("pre") ? code : table);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) wide.removeAttribute(name);
    }
  }
}

letWideBeScrolled();
addEventListener("resize", letWideBeScrolled); // a phone is turned, or the page zoomed

// Escape shuts the drawers of a narrow window, and the keyboard is again where it opened them.
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const toggle of document.querySelectorAll(".sidebar-toggle:checked")) {
      toggle.checked = false;
      toggle.focus();
    }
  }
});

// Two parts of a page are asides: the one on the right is called by its title.
for (const title of document.querySelectorAll(".toc-title")) {
  title.closest("aside").setAttribute("aria-label", title.textContent.trim());
}

// After a search Sphinx marks the words that were found, and asks what is around each for its box:
// within a picture also a title or a style, which have none.
SVGElement.prototype.getBBox ??= () => new DOMRect();
