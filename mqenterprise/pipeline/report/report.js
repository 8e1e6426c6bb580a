// Tables that sort by a click on a title, filter by what is typed, and show their first rows until asked for all.
"use strict";

// The page leads nowhere else, whatever stands in it: a refresh or a link to another page is not followed.
self.navigation?.addEventListener("navigate", (event) => {
  const page = (address) => address.split("#")[0];
  if (page(event.destination.url) !== page(location.href)) event.preventDefault();
});

for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0];
  const few = Number(table.dataset.few);
  const total = body.rows.length;
  const words = Array.from(body.rows, (row) => row.textContent.toLowerCase());
  const place = new Map(Array.from(body.rows, (row, index) => [row, index]));
  const tools = document.createElement("div");
  const filter = document.createElement("input");
  const count = document.createElement("span");
  const more = document.createElement("button");
  let all = false;

  const draw = () => {
    const wanted = filter.value.trim().toLowerCase().split(/\s+/);
    let found = 0;
    for (const row of body.rows) {
      const hit = wanted.every((word) => words[place.get(row)].includes(word));
      found += hit;
      row.hidden = !hit || (!all && found > few);
    }
    const shown = all ? found : Math.min(found, few);
    count.textContent = found === 0 ? "no row matches" : shown + " of " + total + " rows";
    more.hidden = found <= few;
    more.textContent = all ? "Show fewer" : "Show all " + found;
  };

  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), "en", { numeric: true, sensitivity: "base" });

  Array.from(table.tHead.rows[0].cells, (head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      // Numbers begin with the greatest, names with A.
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const order = before === null ? first : before === "ascending" ? "descending" : "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = Array.from(body.rows);
      rows.sort((a, b) => sign * compare(key(a, column), key(b, column)) || place.get(a) - place.get(b));
      body.append(...rows);
      draw();
    });
  });

  if (total > 4) {
    tools.className = "tools";
    filter.type = "search";
    filter.placeholder = "Filter";
    filter.setAttribute("aria-label", "Filter " + table.getAttribute("aria-label"));
    filter.addEventListener("input", draw);
    more.type = "button";
    more.addEventListener("click", () => { all = !all; draw(); });
    count.setAttribute("role", "status");
    tools.append(filter, count, more);
    table.parentNode.before(tools);
  }
  draw();
}
