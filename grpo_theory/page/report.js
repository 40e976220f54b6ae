// Search by number, paper, method, id or words, and folds that open when a link leads into them. Without this script the page reads the same.
const search = document.getElementById("search");
const hits = document.getElementById("hits");
const entries = [...document.querySelectorAll("[data-words]")].map((element) => ({
  anchor: element.id,
  name: element.dataset.hit,
  verdict: element.dataset.verdict,
  words: element.dataset.words.toLowerCase(),
}));

function find() {
  const words = search.value.trim().toLowerCase();
  const found = words ? entries.filter((entry) => entry.words.includes(words)) : [];
  found.sort((a, b) => b.name.toLowerCase().startsWith(words) - a.name.toLowerCase().startsWith(words));
  hits.replaceChildren(
    ...found.slice(0, 40).map((entry) => {
      const item = document.createElement("li");
      const link = item.appendChild(document.createElement("a"));
      link.href = `#${entry.anchor}`;
      link.textContent = entry.name;
      const verdict = item.appendChild(document.createElement("span"));
      verdict.className = entry.verdict.replaceAll(" ", "-");
      verdict.textContent = ` ${entry.verdict}`;
      return item;
    }),
  );
  if (words && !found.length) hits.textContent = "nothing found";
  return found[0];
}

function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
}

search.addEventListener("input", find);
search.addEventListener("keydown", (event) => {
  const first = event.key === "Enter" && find();
  if (first) location.hash = first.anchor;
});
addEventListener("hashchange", unfold);
if (matchMedia("(max-width: 56rem)").matches) document.getElementById("contents").open = false;
unfold();
