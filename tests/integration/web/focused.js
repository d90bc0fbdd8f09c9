// Tells of what has the focus: where it stands in the document, and whether anybody can see that it has it.
() => {
  const it = document.activeElement;
  if (!it || it === document.body) return null;
  const css = getComputedStyle(it), box = it.getBoundingClientRect();
  // A link that stands for its whole row shows it around the row.
  const outlined = [css, getComputedStyle(it, "::after")].some((of) => of.outlineStyle !== "none" && parseFloat(of.outlineWidth) >= 2);
  return {
    place: [...document.querySelectorAll("*")].indexOf(it),
    seen: (outlined || css.boxShadow !== "none") && box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth,
    what: it.outerHTML.replace(/\s+/g, " ").slice(0, 90),
  };
}
