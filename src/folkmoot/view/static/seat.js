// The page of a seat: keeps the draft in this browser, polls for changes, and sends once.
"use strict";

const seat = document.getElementById("seat");
const form = document.getElementById("answer");
const drafts = "folkmoot-draft:" + seat.dataset.seat + ":";

function fields() {
  return [...form.elements].filter((e) => /^a[.~]|^a$/.test(e.name) && e.tagName !== "BUTTON");
}

function keep() {
  const said = fields().map((e) => (e.type === "radio" || e.type === "checkbox" ? e.checked : e.value));
  try {
    localStorage.setItem(drafts + form.dataset.draft, JSON.stringify(said));
  } catch {
    // A browser without storage keeps no draft.
  }
}

function restore() {
  let said;
  try {
    said = JSON.parse(localStorage.getItem(drafts + form.dataset.draft));
  } catch {
    return;
  }
  if (!Array.isArray(said)) return;
  fields().forEach((e, n) => {
    if (e.type === "radio" || e.type === "checkbox") e.checked = said[n] === true;
    else if (!e.value && typeof said[n] === "string") e.value = said[n];
  });
  for (const more of form.querySelectorAll("details.more")) {
    more.open = [...more.querySelectorAll("input,textarea")].some((e) =>
      e.type === "radio" || e.type === "checkbox" ? e.checked : e.value);
  }
}

function forget() {
  // A resumed run shows the waiting page first, and then asks the same question again.
  if (!form && seat.dataset.shows !== "end") return;
  for (const key of Object.keys(localStorage)) {
    if (key.startsWith(drafts) && key !== drafts + (form ? form.dataset.draft : "")) localStorage.removeItem(key);
  }
}

function count() {
  for (const shown of form.querySelectorAll("[data-counts]")) {
    const words = form.elements[shown.dataset.counts].value.split(/\s+/).filter(Boolean).length;
    shown.textContent = words ? words + (words === 1 ? " word" : " words") : "";
  }
}

// On a phone a long persona would push the question out of view. seat.css has the same width.
const part = document.getElementById("part");
if (part && matchMedia("(max-width: 40rem)").matches && part.offsetHeight > innerHeight / 3) part.open = false;

// A second click within this time sends nothing. Later, the first may have been stopped or lost.
const RESEND_MS = 8000;
function isSending(sentForm) {
  return sentForm && Date.now() - Number(sentForm.dataset.sent || 0) < RESEND_MS;
}
for (const once of document.querySelectorAll("form.once")) {
  once.addEventListener("submit", (event) => {
    if (isSending(once)) event.preventDefault();
    else once.dataset.sent = String(Date.now());
  });
}

if (form) {
  restore();
  keep(); // text that was typed before this script ran
  count();
  form.addEventListener("input", () => { keep(); count(); });
  form.addEventListener("change", keep);
}
try { forget(); } catch { /* no storage */ }

const clock = document.getElementById("clock");
let left = clock ? Number(clock.dataset.left) : null;
function tell() {
  if (left === null || !clock) return;
  const shown = Math.max(0, Math.round(left));
  clock.textContent = (clock.dataset.says || "Time left:") + " " + Math.floor(shown / 60) + ":" + String(shown % 60).padStart(2, "0");
  if (clock.dataset.nudge && left <= Number(clock.dataset.nudge)) {
    document.getElementById("nudge").hidden = false;
    document.title = "Little time left · Folkmoot";
  }
}
if (clock) {
  tell();
  setInterval(() => { left -= 1; tell(); }, 1000);
}

// The researcher sees whether a human reads, writes or is idle, and since when, but no text.
let moved = Date.now();
let typed = null;
for (const kind of ["pointerdown", "pointermove", "keydown", "scroll"]) {
  document.addEventListener(kind, () => { moved = Date.now(); }, { passive: true });
}
if (form) form.addEventListener("input", () => { typed = Date.now(); });
function activity() {
  const ago = (then) => Math.round((Date.now() - then) / 1000);
  return "?idle=" + ago(moved) + (typed === null ? "" : "&typed=" + ago(typed));
}

// A sound says that it is the human's turn. A browser plays sounds only after a click on the page.
const wanted = document.getElementById("sound");
function ring() {
  try {
    const audio = new AudioContext();
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    tone.frequency.value = 660;
    volume.gain.setValueAtTime(0.15, audio.currentTime);
    volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.6);
    tone.connect(volume).connect(audio.destination);
    tone.start();
    tone.stop(audio.currentTime + 0.6);
  } catch {
    // A browser without sound stays silent.
  }
}
if (wanted) {
  try { wanted.checked = localStorage.getItem("folkmoot-sound") === "yes"; } catch { /* no storage */ }
  wanted.addEventListener("change", () => {
    try { localStorage.setItem("folkmoot-sound", wanted.checked ? "yes" : "no"); } catch { /* no storage */ }
    if (wanted.checked) ring();
  });
}

const SECONDS = { seen: 1, hidden: 5, lost: 2 };
let wake = null;
function pause(seconds) {
  return new Promise((on) => {
    wake = on;
    setTimeout(on, 1000 * seconds);
  });
}
document.addEventListener("visibilitychange", () => { if (!document.hidden && wake) wake(); });

// Messages of the researcher appear at once, and typed text is kept.
function showMessages(texts) {
  const shown = document.getElementById("messages");
  for (const text of texts.slice(shown.children.length)) {
    const item = document.createElement("p");
    item.textContent = text;
    shown.append(item);
    if (wanted && wanted.checked) ring();
  }
}

async function listen() {
  const lost = document.getElementById("lost");
  let tag = "";
  for (;;) {
    let wait = document.hidden ? SECONDS.hidden : SECONDS.seen;
    try {
      const reply = await fetch(seat.dataset.seat + "/news" + activity(), { cache: "no-store", headers: { "If-None-Match": tag } });
      if (!reply.ok && reply.status !== 304) throw new Error(reply.status);
      lost.hidden = true;
      if (reply.ok) {
        tag = reply.headers.get("ETag") || "";
        const news = await reply.json();
        showMessages(news.messages);
        if (news.shows !== seat.dataset.shows && !isSending(form)) {
          if (wanted && wanted.checked && !["", "end", "lobby", "code"].includes(news.shows)) {
            ring();
            await pause(0.7);
          }
          location.replace(seat.dataset.seat);
          return;
        }
        const taken = document.getElementById("taken");
        if (taken && taken.textContent !== news.taken) taken.textContent = news.taken;
        if (news.left !== null && clock) { left = news.left; tell(); }
      }
    } catch {
      lost.hidden = false;
      wait = SECONDS.lost;
      tag = "";
    }
    await pause(wait);
  }
}
if (!["leave", "welcome", "end"].includes(seat.dataset.shows)) listen();
