// The colours: those of the system, until the reader chooses others.

const button = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");

// Browsers can be set to keep nothing; then the choice holds for this page alone.
function kept() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function keep(theme) {
  try { localStorage.setItem("theme", theme); } catch { /* see kept */ }
}

function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  button.setAttribute("aria-pressed", String(theme ? theme === "dark" : system.matches));
}

button.addEventListener("click", () => {
  const theme = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  keep(theme);
  show(theme);
});
system.addEventListener("change", () => show(kept()));
show(kept());
