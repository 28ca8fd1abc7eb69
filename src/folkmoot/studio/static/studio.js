// The form of a study is rendered again when a row is added, removed or moved. Open groups stay
// open. The focus moves to the new or moved row, or to the list from which a row was removed.
(() => {
  const field = "input:not([type=hidden]), select, textarea, summary";
  let pressed = null;
  let open = new Map();
  const fields = () => document.getElementById("fields");
  const rowsOf = (list) => [...list.children].filter((each) => each.matches(".row"));
  const buttonOf = (value) =>
    [...fields().querySelectorAll("button[name=action]")].find((each) => each.value === value);
  const focusAfter = ({ verb, value, place, list }) => {
    const add = buttonOf(`add ${list}`);
    const rows = add ? rowsOf(add.parentElement) : [];
    const row = { add: rows.at(-1), rows: rows[0], up: rows[place - 1] }[verb];
    const up = verb === "up" && row?.querySelector(":scope > .row-actions > button[value^='up ']");
    const same = verb === "column" && buttonOf(value);
    // A list without rows may be a single field again, which can become rows.
    const places = [up, row?.querySelector(field), same, add, buttonOf(`rows ${list}`)];
    places.find((each) => each && each.checkVisibility())?.focus();
  };
  // Until the rows are rendered again, input is disabled, because it would belong to old rows.
  addEventListener(
    "submit",
    (e) => {
      const button = e.submitter;
      if (!fields()?.contains(button)) return;
      const [verb, ...path] = button.value.split(" ");
      const row = button.closest(".row");
      const add = button.closest(".list")?.querySelector(":scope > button[value^='add ']");
      pressed = { verb, value: button.value, place: row ? rowsOf(row.parentElement).indexOf(row) : 0 };
      pressed.list = verb === "rows" ? path.join(" ") : add?.value.slice("add ".length);
      fields().inert = true;
    },
    true,
  );
  // Only the request of a button has its action. htmx forgets the button of a request that waits for
  // an earlier one, and adds a button that has the focus to the request of a typed value.
  addEventListener("htmx:configRequest", (e) => {
    const button = e.detail.triggeringEvent?.submitter;
    if (button?.name === "action") e.detail.parameters.action = button.value;
    else delete e.detail.parameters.action;
  });
  addEventListener("htmx:afterRequest", (e) => {
    if (e.detail.requestConfig.triggeringEvent?.submitter && fields()) fields().inert = false;
  });
  addEventListener("htmx:oobBeforeSwap", (e) => {
    if (e.detail.target !== fields()) return;
    open = new Map([...fields().querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
  });
  addEventListener("htmx:oobAfterSwap", (e) => {
    if (e.detail.target !== fields()) return;
    fields().inert = false;
    for (const details of fields().querySelectorAll("details[id]"))
      if (open.has(details.id)) details.open = open.get(details.id);
    if (pressed) focusAfter(pressed);
    pressed = null;
  });

  // The problems beside the fields are replaced. The fields do not change.
  addEventListener("htmx:afterSettle", () => {
    for (const mistake of fields()?.querySelectorAll(".mistake") ?? []) {
      const input = document.getElementById(mistake.id.slice("m-".length));
      if (!input?.matches(field)) continue;
      const isWrong = mistake.textContent.trim() && !mistake.matches(".warning");
      if (isWrong) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  });

  // A change is sent after a moment. If the researcher leaves the page earlier, for example to start
  // a run, the change is sent first.
  const form = () => document.getElementById("form");
  let dirty = false;
  addEventListener("input", (e) => (dirty ||= !!form()?.contains(e.target)));
  // What is typed before htmx has started is sent when the page is complete. For this reason the
  // page waits for this script.
  addEventListener("load", () => dirty && htmx.trigger(form(), "submit"));
  addEventListener("htmx:afterRequest", (e) => {
    if (e.detail.elt !== form()) return;
    dirty = !e.detail.successful;
    if (!dirty) return;
    // Without this, the page would still say that all is saved.
    const alarm = document.createElement("p");
    alarm.className = "alarm";
    alarm.textContent =
      "Not saved. The studio has stopped, or does not know this page any more. Copy what you " +
      "entered last, and open the address that the studio prints when it starts.";
    document.getElementById("status").replaceChildren(alarm);
  });
  // Input that could not be saved stays on the page.
  const saveFirst = (e, then) => {
    e.preventDefault();
    e.stopPropagation();
    form().addEventListener("htmx:afterRequest", (after) => after.detail.successful && then(), {
      once: true,
    });
    htmx.trigger(form(), "submit");
  };
  addEventListener(
    "click",
    (e) => {
      const link = e.target.closest?.("a[href]");
      if (!dirty || !link || e.ctrlKey || e.metaKey || link.hash) return;
      saveFirst(e, () => (location.href = link.href));
    },
    true,
  );
  addEventListener(
    "submit",
    (e) => {
      if (!dirty || e.target === form() || e.target.method !== "post") return;
      saveFirst(e, () => e.target.requestSubmit(e.submitter));
    },
    true,
  );
  // The tab is closed, or the researcher goes back. This request is sent although the page is gone.
  addEventListener("pagehide", () => {
    // A button named `action` hides the property of this name.
    const address = form()?.getAttribute("action");
    if (dirty) navigator.sendBeacon(address, new URLSearchParams(new FormData(form())));
    dirty = false;
  });

  // The text of the study file and of a prompt is saved by its button alone.
  let unsavedText = false;
  addEventListener("DOMContentLoaded", () => {
    unsavedText ||= document.querySelector("textarea[data-unsaved]") !== null;
  });
  addEventListener("input", (e) => (unsavedText ||= e.target.matches("textarea.code")));
  addEventListener("submit", (e) => {
    if (e.target.querySelector("textarea.code")) unsavedText = false;
  });
  addEventListener("beforeunload", (e) => {
    if (unsavedText) e.preventDefault();
  });
})();
