// Looks at a page for controls without a name, text that is too pale, and missing landmarks.
() => {
  const nameless = [], pale = [];
  for (const it of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href], summary")) {
    const name = it.getAttribute("aria-label") || it.innerText || it.value || (it.labels && [...it.labels].map((l) => l.innerText).join("")) || "";
    const labelled = it.matches("input, select, textarea") ? it.labels.length || it.getAttribute("aria-label") : name.trim();
    if (!labelled && it.checkVisibility()) nameless.push(it.outerHTML.slice(0, 80));
  }
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = (c) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const behind = (it) => { for (; it; it = it.parentElement) { const c = rgb(getComputedStyle(it).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  for (const it of document.querySelectorAll("body *")) {
    const own = [...it.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !it.checkVisibility() || it.matches(":disabled, .unseen, .skip, title, option, script") || it.closest("svg")) continue;
    const [a, b] = [light(rgb(getComputedStyle(it).color)), light(behind(it))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) pale.push(it.className + ": " + it.innerText.slice(0, 40));
  }
  const landmarks = !!document.querySelector("main") && !!document.querySelector("nav[aria-label]") && document.querySelectorAll("h1").length === 1;
  return { nameless, pale: [...new Set(pale)], landmarks };
}
