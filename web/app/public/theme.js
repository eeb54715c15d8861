// Before anything is drawn, so that a chosen theme does not flash: the page's modules come later.
try {
  var theme = JSON.parse(localStorage.getItem('selkie.settings') || '{}').theme;
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch (error) {
  // A browser that keeps nothing follows the system.
}
