// Looks at a page for controls without a name, text and marks that are too pale, targets too small for a thumb, headings that skip a
// level, names that stand twice, missing landmarks, and whatever sticks out of the window.
() => {
  const nameless = [], pale = [], small = [], doubled = [], skipped = [];
  const told = (it) => it.outerHTML.replace(/\s+/g, " ").slice(0, 90);
  const shown = (it) => it.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  for (const it of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href], summary")) {
    const name = it.getAttribute("aria-label") || it.innerText || it.value || "";
    const labelled = it.matches("input, select, textarea") ? it.labels.length || it.getAttribute("aria-label") : name.trim();
    if (!labelled && shown(it)) nameless.push(told(it));
  }
  // Colours
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = (c) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const behind = (it) => { for (; it; it = it.parentElement) { const c = rgb(getComputedStyle(it).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  const ratio = (css, it) => { const [a, b] = [light(rgb(css)), light(behind(it))].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
  for (const it of document.querySelectorAll("body *")) {
    const own = [...it.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !shown(it) || it.matches(":disabled, .unseen, .skip, title, option, script")) continue;
    const css = getComputedStyle(it);
    if (ratio(it.closest("svg") ? css.fill : css.color, it) < 4.5) pale.push(it.getAttribute("class") + ": " + it.textContent.slice(0, 40));
  }
  for (const it of document.querySelectorAll(".chart rect, .bar .used")) if (shown(it) && ratio(getComputedStyle(it).fill, it) < 3) pale.push(told(it));
  // Thumbs
  for (const it of document.querySelectorAll("button, input:not([type=hidden]), select, summary, nav a, a.button")) {
    const box = it.getBoundingClientRect();
    if (shown(it) && !it.closest(".unseen") && it.type !== "radio" && (box.width < 24 || box.height < 24)) small.push(Math.round(box.width) + "x" + Math.round(box.height) + " " + told(it));
  }
  // Order
  const ids = new Map();
  for (const it of document.querySelectorAll("[id]")) ids.set(it.id, (ids.get(it.id) || 0) + 1);
  for (const [id, count] of ids) if (count > 1) doubled.push(id);
  let level = 1;
  for (const it of document.querySelectorAll("h1, h2, h3")) { const now = Number(it.tagName[1]); if (now > level + 1) skipped.push(told(it)); level = now; }
  const landmarks = document.documentElement.lang === "en" && !!document.querySelector("main") && !!document.querySelector("nav[aria-label]") && document.querySelectorAll("h1").length === 1;
  const wide = document.documentElement.scrollWidth > innerWidth;
  return { wide, nameless, pale: [...new Set(pale)], small: [...new Set(small)], doubled, skipped, landmarks };
}
