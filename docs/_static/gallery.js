// Whoever has no mouse scrolls wide code, outputs and tables with the arrow keys, once they have focus.
for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
  if (wide.scrollWidth > wide.clientWidth) {
    wide.tabIndex = 0;
    wide.setAttribute("role", "group"); // a region would be a landmark, and these are many
    wide.setAttribute("aria-label", wide.matches("pre") ? "Code or output" : "Table");
  }
}

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
