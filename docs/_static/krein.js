// What the theme and the gallery leave without a name for people who listen to a page, or cannot reach by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label"); // its text says it
  for (const summary of document.querySelectorAll("summary:not([aria-label])")) {
    const link = summary.closest("li")?.querySelector("a");
    if (link && !summary.textContent.trim()) summary.setAttribute("aria-label", `Pages of ${link.textContent.trim()}`);
  }
  for (const card of document.querySelectorAll(".sphx-glr-thumbcontainer")) {
    const title = card.querySelector(".sphx-glr-thumbnail-title")?.textContent.trim();
    for (const link of card.querySelectorAll("a")) if (title) link.setAttribute("aria-label", title);
  }
  for (const wide of document.querySelectorAll(".bd-article table, .bd-article pre, .bd-article .math, .bd-article figure")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
  }
});
