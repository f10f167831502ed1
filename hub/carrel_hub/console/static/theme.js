/* The chosen look, before anything is drawn: light, dark, or as the system has it. The Hub's pages
   keep the choice under the same name. */
(() => {
  "use strict";
  const KEY = "jupyterhub-bs-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const chosen = () => (["light", "dark"].includes(stored()) ? stored() : system.matches ? "dark" : "light");
  const show = () => {
    document.documentElement.dataset.theme = chosen();
    document.dispatchEvent(new Event("carrel:theme"));
  };
  show();
  system.addEventListener("change", show);
  addEventListener("storage", show);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      try { localStorage.setItem(KEY, chosen() === "dark" ? "light" : "dark"); } catch { return; }
      show();
    });
  });
})();
