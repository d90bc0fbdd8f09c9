// Looks at a page for anything that was not made by us: elements, handlers, odd letters, or something that ran.
() => {
  const foreign = [...document.querySelectorAll("script, img, iframe, object, embed, link, base, form, svg")].filter((it) => !(
    (it.matches("script") && new URL(it.src || "x:", location).pathname.startsWith("/static/")) ||
    (it.matches("link") && new URL(it.href).pathname.startsWith("/static/")) ||
    (it.matches("form") && new URL(it.action).origin === location.origin) || it.matches("svg[viewBox]")));
  const handlers = [...document.querySelectorAll("*")].filter((it) => it.getAttributeNames().some((n) => n.startsWith("on") || n === "style" || n === "srcdoc"));
  const links = [...document.querySelectorAll("a[href]")].filter((it) => !/^https?:$/.test(it.protocol));
  const text = document.body.innerText + document.title;
  const odd = [...new Set(text.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]/g) || [])];
  return { pwned: window.pwned ?? null, foreign: [...foreign, ...handlers, ...links].map((it) => it.outerHTML.slice(0, 120)), odd: odd.map((c) => c.codePointAt(0)),
           wide: document.documentElement.scrollWidth - window.innerWidth, seven: text.includes("49{%x%}") };
}
