/* What makes pages live: one stream of changes, at most two refreshes a second, and nothing moves
   under the pointer or the keyboard. Without this file every page still reads and every form works. */
(() => {
  "use strict";
  const SHORTEST_PAUSE_MS = 500;
  const FIRST_RETRY_MS = 1000;
  const LONGEST_RETRY_MS = 15000;
  const SILENT_SECONDS = 40;
  const refresher = document.getElementById("refresher");
  if (!refresher) return;
  const note = document.getElementById("live-note");
  let last = 0;
  let planned = null;
  let over = false;

  const refresh = () => {
    planned = null;
    last = Date.now();
    if (!document.hidden) htmx.trigger(refresher, "carrel:refresh");
  };
  const plan = () => {
    if (!over && planned === null) planned = setTimeout(refresh, Math.max(0, last + SHORTEST_PAUSE_MS - Date.now()));
  };

  const inUse = (region) => region.matches(":hover") || region.contains(document.activeElement) || region.querySelector("input:checked") !== null;
  document.body.addEventListener("htmx:oobBeforeSwap", (event) => {
    if (!inUse(event.detail.target)) return;
    event.detail.shouldSwap = false;
    event.detail.target.dataset.held = "yes";
  });
  const release = (event) => {
    const region = event.target.closest?.("[data-held]");
    if (region && !region.contains(event.relatedTarget)) plan();
  };
  document.body.addEventListener("pointerout", release);
  document.body.addEventListener("focusout", release);

  const say = (text) => { if (note) note.textContent = text; };

  let heardAt = null;
  const heard = () => { heardAt = Date.now(); tellHeard(); };
  const tellHeard = () => {
    if (heardAt === null || over || stream === null) return;
    const seconds = Math.round((Date.now() - heardAt) / 1000);
    say(seconds > SILENT_SECONDS ? `Nothing heard from the scheduler for ${seconds} s: what is shown may be old.` : "Live");
  };
  setInterval(tellHeard, 5000);

  let stream = null;
  let pause = FIRST_RETRY_MS;
  const start = () => {
    if (over || stream !== null || document.hidden) return;
    const address = new URL(refresher.dataset.events, window.location.href);
    address.protocol = address.protocol.replace("http", "ws");
    stream = new WebSocket(address);
    stream.onopen = () => { pause = FIRST_RETRY_MS; heard(); };
    stream.onmessage = (event) => { heard(); if (event.data === "change") plan(); };
    stream.onclose = () => {
      stream = null;
      if (document.hidden) return;
      say(`Not live at the moment: trying again.${heardAt === null ? "" : ` Last heard from the scheduler at ${new Date(heardAt).toLocaleTimeString()}.`}`);
      setTimeout(start, pause);
      pause = Math.min(pause * 2, LONGEST_RETRY_MS);
    };
  };
  const stop = () => {
    if (stream === null) return;
    stream.onclose = null;
    stream.close();
    stream = null;
  };
  document.body.addEventListener("htmx:responseError", (event) => {
    if (![401, 403].includes(event.detail.xhr.status)) return;
    over = true;
    stop();
    say("You are signed out: reload the page to sign in again.");
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return stop();
    start();
    plan();
  });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  const every = Number(refresher.dataset.every) * 1000;
  if (every > 0) setInterval(plan, every);
})();
