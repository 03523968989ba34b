// Whoever has no mouse scrolls wide code, outputs and tables with the arrow keys, once they have focus.
for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
  if (wide.scrollWidth > wide.clientWidth) {
    wide.tabIndex = 0;
    wide.setAttribute("role", "group"); // a region would be a landmark, and these are many
    wide.setAttribute("aria-label", wide.matches("pre") ? "Code or output" : "Table");
  }
}
