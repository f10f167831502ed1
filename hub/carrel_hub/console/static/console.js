/* What makes pages live: one stream of changes, at most two refreshes a second, and nothing moves
   under the pointer or the keyboard. Without this file every page still reads and every form works. */
(() => {
  "use strict";
  const SHORTEST_PAUSE_MS = 500;
  const LONGEST_RETRY_MS = 15000;
  const refresher = document.getElementById("refresher");
  if (!refresher) return;
  const note = document.getElementById("live-note");
  const token = refresher.dataset.xsrf;
  let last = 0;
  let planned = null;
  let stream = null;

  const refresh = () => {
    planned = null;
    last = Date.now();
    if (!document.hidden) htmx.trigger(refresher, "carrel:refresh");
  };
  const plan = () => {
    if (planned === null) planned = setTimeout(refresh, Math.max(0, last + SHORTEST_PAUSE_MS - Date.now()));
  };

  const inUse = (region) => region.matches(":hover") || region.contains(document.activeElement);
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

  async function listen(signal) {
    let pause = 1000;
    while (!signal.aborted) {
      try {
        const answer = await fetch(refresher.dataset.events, { headers: { "X-XSRFToken": token }, signal });
        if (answer.status === 401 || answer.status === 403) return say("You are signed out: reload the page to sign in again.");
        if (!answer.ok) throw new Error(String(answer.status));
        pause = 1000;
        say("");
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          if (value.includes("event: change")) plan();
        }
      } catch (error) {
        if (signal.aborted) return;
      }
      say("Not live at the moment: trying again.");
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, LONGEST_RETRY_MS);
    }
  }

  const start = () => {
    if (stream === null) { stream = new AbortController(); listen(stream.signal); }
  };
  const stop = () => { stream?.abort(); stream = null; };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return stop();
    start();
    plan();
  });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", () => { if (!document.hidden) start(); });
  const every = Number(refresher.dataset.every) * 1000;
  if (every > 0) setInterval(plan, every);
})();
