// Before the first paint: the colours that this browser was told to use, if it was.
try {
  const theme = localStorage.getItem("strandline-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is off: the system's colours it is */ }
