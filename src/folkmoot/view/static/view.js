// Keys of the viewer: j and k select the next and previous element with data-item, / searches,
// ? shows the keys. Live pages update themselves and keep the focus.
(() => {
  const typing = (e) => e.target.closest("input, select, textarea, [contenteditable]");
  const items = () => [...document.querySelectorAll("[data-item]")].filter((e) => e.offsetParent);
  const opens = (item) => (item.matches("a, summary") ? item : item.querySelector("a[href], summary"));
  let at = null;
  const go = (step) => {
    const all = items();
    if (!all.length) return;
    const focused = document.activeElement.closest("[data-item]") || at;
    const now = all.indexOf(focused);
    at = all[Math.min(all.length - 1, Math.max(0, now + (now < 0 ? 1 : step)))];
    const to = opens(at);
    if (to) to.focus({ preventScroll: true });
    at.scrollIntoView({ block: "center" });
  };
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
    if (e.key === "Escape" && typing(e)) return e.target.blur();
    if (typing(e) || document.querySelector("dialog[open]")) return;
    const find = document.querySelector("input[type=search]");
    if (e.key === "j") go(1);
    else if (e.key === "k") go(-1);
    else if (e.key === "?") document.getElementById("keys")?.showModal();
    else if (e.key === "/" && find) find.focus(), find.select();
    else return;
    e.preventDefault();
  });
  // A part that may change (data-tag) is requested with the tag of its present content. Hidden pages
  // request nothing. An update keeps the focus on its link. If a drawer of a transcript is open, or an
  // element in it has the focus, the page only says that there is more.
  const part = (e) => (e.detail.elt.dataset.tag === undefined ? null : e.detail.elt);
  let focused = null;
  addEventListener("htmx:configRequest", (e) => {
    if (part(e)) e.detail.headers["If-None-Match"] = part(e).dataset.tag;
  });
  addEventListener("htmx:beforeRequest", (e) => {
    if (part(e) && document.hidden) e.preventDefault();
  });
  addEventListener("htmx:beforeSwap", (e) => {
    const moving = part(e);
    if (!moving || !e.detail.shouldSwap) return;
    const more = document.querySelector(".more");
    if (moving.matches("[data-still]")) {
      const read = moving.contains(document.activeElement) || moving.querySelector("details[open]");
      if (more) more.hidden = !read;
      if (read) {
        e.detail.shouldSwap = false;
        return;
      }
    }
    moving.dataset.tag = e.detail.xhr.getResponseHeader("ETag") || "";
    focused = document.activeElement.getAttribute("href");
  });
  addEventListener("htmx:afterSwap", (e) => {
    if (!part(e) || focused === null || document.activeElement !== document.body) return;
    [...part(e).querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused)?.focus();
  });
})();
