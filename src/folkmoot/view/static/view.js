// Keys of the reader: j and k go through what is marked data-item, / searches, ? shows the keys.
// Pages under way move without taking the focus.
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
  // What moves by itself takes nothing from under the reader: the focus stays on its link, and a
  // talk in which a drawer is open, or something has the focus, says that there is more instead.
  let focused = null;
  addEventListener("htmx:sseBeforeMessage", (e) => {
    const still = e.target.closest("[data-still]");
    if (still && (still.contains(document.activeElement) || still.querySelector("details[open]"))) {
      document.querySelector(".more").hidden = false;
      e.preventDefault();
    }
    focused = document.activeElement.getAttribute("href");
  });
  addEventListener("htmx:sseMessage", (e) => {
    if (focused === null || document.activeElement !== document.body) return;
    [...e.target.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused)?.focus();
  });
})();
