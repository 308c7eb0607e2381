"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const one = (selector, inside = document) => inside.querySelector(selector);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const svg = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const make = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // A name that may break after / _ - . or, if it is long, is shortened, as in the rest of the page.
  const named = (text) => {
    const parts = text.length > 32 ? make("span", "cut") : document.createDocumentFragment();
    if (text.length > 32) parts.title = text;
    text.split(/(?<=[/_.-])(?=[^\s/_.-])/).forEach((part, place) => parts.append(...(place ? [make("wbr"), part] : [part])));
    return parts;
  };
  // A search for a class matches the class with exactly this name; if there is none, every name that contains the text.
  const finder = (text, names) => {
    const words = text.trim().toLowerCase();
    if (names.some((name) => name.toLowerCase() === words)) return (name) => name.toLowerCase() === words;
    return (name) => name.toLowerCase().includes(words);
  };
  // Names to choose from; filled on focus, since there may be thousands.
  const choices = (input, names) => input.addEventListener("focus", () => {
    input.list.append(...names.map((name) => { const choice = make("option"); choice.value = name; return choice; }));
  }, { once: true });
  const said = document.getElementById("said");
  document.documentElement.classList.add("live");

  // On a narrow screen the values of a row stand below one another: each needs the head of its column.
  for (const table of all(".stacked")) {
    const heads = all("thead th", table).map((head) => one(".cut", head)?.title ?? head.textContent);
    for (const row of all("tbody tr", table)) [...row.cells].forEach((cell, place) => { cell.dataset.head = heads[place]; });
  }

  // One tab stop for many elements: arrow keys move it.
  const stop = (things, wanted) => {
    for (const thing of things) if (thing.tabIndex !== -1) thing.tabIndex = -1;
    if (wanted) wanted.tabIndex = 0;
  };

  // ------------------------------------------------------------------------------------------------ retrieved images

  const cards = all(".query"), few = cards.filter((card) => card.open).length;
  const inClass = new Set(cards.map((card) => card.dataset.class));
  const filters = { reason: one("#show-reason"), first: one("#show-first"), kind: one("#show-class") };

  function showCards() {
    const { classes, queries } = data.gallery, wanted = finder(filters.kind.value, classes);
    let shown = 0;
    for (const card of cards) {
      const fits = (!filters.reason.value || card.dataset.why.split(" ").includes(filters.reason.value))
        && (!filters.first.value || card.dataset.first === filters.first.value) && wanted(card.dataset.class);
      card.hidden = !fits;
      shown += fits;
      card.open = fits && shown <= few;
    }
    const known = classes.some(wanted), shows = cards.some((card) => wanted(card.dataset.class));
    one("#shown").textContent = (shown === 1 ? "1 query" : `${shown} queries`) + (!known ? ": no class has this name"
      : shows ? "" : `: the page shows ${cards.length} of ${queries.toLocaleString("en")} queries, none of this class`);
  }

  function showClass(name) {
    filters.reason.value = filters.first.value = "";
    filters.kind.value = name;
    showCards();
    one("#gallery").scrollIntoView();
    const cell = one(".query:not([hidden]) .cell");
    if (cell) cell.focus({ preventScroll: true });
  }

  function enlarge(cell) {
    const card = cell.closest(".query"), body = one("#large-body");
    const big = (thing) => {
      const figure = make("figure", thing.classList.contains("ok") ? "ok" : thing.classList.contains("no") ? "no" : "");
      const picture = one(".pic", thing).cloneNode(true);
      const words = make("p");
      const asked = thing.classList.contains("asked");
      const kind = one(asked ? "strong" : ".name", thing).textContent;
      const name = asked ? one(".muted", thing).textContent : one(".name", thing).title.slice(kind.length + 2);
      words.append(make("strong", "", asked ? "query" : `${one("b", thing).textContent}, similarity ${one(".score", thing).textContent}`));
      words.append(document.createElement("br"), kind, document.createElement("br"), make("span", "muted", name));
      figure.append(picture, words);
      return figure;
    };
    const asked = one(".asked", card);
    body.replaceChildren(big(asked), ...(cell === asked ? [] : [big(cell)]));
    one("#large").showModal();
  }

  if (cards.length) {
    for (const filter of Object.values(filters)) filter.addEventListener("input", showCards);
    choices(filters.kind, data.gallery.classes);
    one("#show-all").addEventListener("click", () => {
      for (const filter of Object.values(filters)) filter.value = "";
      showCards();
    });
    const box = one("#cards"), unfold = one("#open-all");
    const nameButton = () => {
      unfold.textContent = cards.some((card) => !card.hidden && !card.open) ? "Open all" : "Fold all";
    };
    unfold.addEventListener("click", () => {
      const shown = cards.filter((card) => !card.hidden), folded = shown.some((card) => !card.open);
      for (const card of shown) card.open = folded;
      nameButton();  // the event below comes later
    });
    box.addEventListener("toggle", nameButton, true);
    for (const cell of all(".cell", box)) {
      cell.tabIndex = -1;
      cell.setAttribute("role", "button");
    }
    for (const card of cards) stop([], one(".cell", card));
    box.addEventListener("click", (event) => {
      const cell = event.target.closest(".cell");
      if (cell) enlarge(cell);
    });
    box.addEventListener("focusin", (event) => {
      if (event.target.matches(".cell")) stop(all(".cell[tabindex='0']", event.target.closest(".query")), event.target);
    });
    box.addEventListener("keydown", (event) => {
      const cell = event.target.closest(".cell");
      if (!cell) return;
      const rows = all(".query[open]:not([hidden])", box).flatMap((card) =>
        all("ol", card).map((strip) => [one(".asked", card), ...all(".cell", strip)]));
      const row = rows.findIndex((cells) => cells.includes(cell)), column = rows[row].indexOf(cell);
      let wanted = null;
      if (event.key === "ArrowRight") wanted = rows[row][column + 1];
      else if (event.key === "ArrowLeft") wanted = rows[row][column - 1];
      else if (event.key === "Home") wanted = rows[row][0];
      else if (event.key === "End") wanted = rows[row].at(-1);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const step = event.key === "ArrowDown" ? 1 : -1;
        let next = row + step;
        while (rows[next] && rows[next][Math.min(column, rows[next].length - 1)] === cell) next += step;
        wanted = rows[next] && rows[next][Math.min(column, rows[next].length - 1)];
      } else if (event.key === "Enter" || event.key === " ") enlarge(cell);
      else return;
      event.preventDefault();
      if (wanted) wanted.focus();
    });
  }

  // --------------------------------------------------------------------------------------------------------- classes

  function table(box) {
    const { columns, rows, bars, page, formats } = data.tables[box.dataset.table];
    let by = data.tables[box.dataset.table].sorted, down = false, from = 0, found = rows;
    const heads = all("thead th", box), body = one("tbody", box), search = one("input", box), status = one(".status", box);
    const [back, on] = [one(".back", box), one(".on", box)];
    const leads = box.dataset.table === "class" && cards.length > 0;

    function cells(row) {
      const line = make("tr");
      line.tabIndex = -1;
      row.forEach((value, place) => {
        const cell = make(place ? "td" : "th");
        if (!place) {
          cell.scope = "row";
          if (leads && inClass.has(value)) {
            const button = make("button", "leads");
            button.append(named(value));
            button.type = "button";
            button.addEventListener("click", () => showClass(value));
            cell.append(button);
          } else cell.append(named(value));
        } else if (value === null) cell.textContent = "\u2013";
        else if (formats[place] === "count") cell.textContent = value.toLocaleString("en");
        else if (formats[place] === "score") cell.textContent = Number(value.toPrecision(4));
        else {
          cell.textContent = (100 * value).toFixed(1);
          if (place === bars) {
            const bar = svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
            bar.append(svg("rect", { width: Math.max(0, Math.min(100, 100 * value)), height: 8 }));
            cell.append(bar);
          }
        }
        line.append(cell);
      });
      return line;
    }

    function draw() {
      body.replaceChildren(...found.slice(from, from + page).map(cells));
      stop([], body.firstElementChild);
      heads.forEach((head, place) => {
        if (place === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      const last = Math.min(from + page, found.length), of = found.length.toLocaleString("en");
      const kind = found.length < rows.length ? ` matching, of ${rows.length.toLocaleString("en")}` : "";
      status.textContent = found.length > page ? `${from + 1} to ${last} of ${of}${kind}` : `${of}${kind || " rows"}`;
      one(".pager", box).hidden = found.length <= page;
      back.disabled = from === 0;
      on.disabled = last === found.length;
    }

    function sort() {
      // rows without a value come last in both directions
      const way = down ? -1 : 1;
      const order = (a, b) => (a === null) - (b === null) || (a === null ? 0 : way * (typeof a === "string" ? a.localeCompare(b) : a - b));
      rows.sort((a, b) => order(a[by], b[by]) || a[0].localeCompare(b[0]));
    }

    function filter() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = words.length ? rows.filter((row) => words.every((word) => row[0].toLowerCase().includes(word))) : rows;
      from = 0;
      draw();
    }

    heads.forEach((head, place) => {
      const button = make("button");
      button.append(named(columns[place]));
      button.type = "button";
      button.addEventListener("click", () => {
        down = by === place ? !down : false;
        by = place;
        sort();
        filter();
        said.textContent = `sorted by ${columns[place]}, ${down ? "highest" : place ? "lowest" : "A"} first`;
      });
      head.replaceChildren(button);
    });
    search.addEventListener("input", filter);
    back.addEventListener("click", () => { from -= page; draw(); });
    on.addEventListener("click", () => { from += page; draw(); });
    body.addEventListener("keydown", (event) => {
      const line = event.target.closest("tr");
      const wanted = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling,
        Home: body.firstElementChild, End: body.lastElementChild }[event.key];
      if (wanted === undefined && event.key === "Enter" && event.target === line) {
        const button = one("button.leads", line);
        if (button) button.click();
        return;
      }
      if (wanted === undefined) return;
      event.preventDefault();
      if (wanted) {
        stop(all("tr[tabindex='0']", body), wanted);
        wanted.focus();
      }
    });
    sort();
    filter();
  }
  all(".table").forEach(table);

  // ------------------------------------------------------------------------------------------------------------- map

  if (data.map) {
    const map = data.map, drawings = all(".map > svg"), colour = one("#map-colour"), wanted = one("#map-class");
    const legend = one("#map-legend"), tip = one("#tip"), GROUPS = 20;
    const byClass = (value) => map.classes[map.class[value]];
    let only = null, at = null;
    choices(wanted, map.classes);

    function groups() {
      if (colour.value.startsWith("ok")) {
        const right = map.runs[Number(colour.value.slice(2))].ok;
        return { of: right.map((value) => (value ? "ok" : "no")), names: { ok: "nearest item right", no: "nearest item wrong" }, text: "whether the nearest item is right" };
      }
      const names = colour.value === "super" ? map.supers : map.classes;
      const shown = Object.fromEntries(names.slice(0, GROUPS).map((name, place) => [place, name]));
      if (names.length > GROUPS) shown[GROUPS] = `${(names.length - GROUPS).toLocaleString("en")} others`;
      return { of: map[colour.value].map((place) => Math.min(place, GROUPS)), names: shown, text: colour.selectedOptions[0].textContent };
    }

    function draw() {
      const { of, names, text } = groups();
      const search = finder(wanted.value, map.classes);
      const fits = (point) => (only === null || String(of[point]) === only) && search(byClass(point));
      drawings.forEach((drawing, run) => {
        const { x, y } = map.runs[run], paths = {};
        for (let point = 0; point < x.length; point++) {
          const kind = fits(point) ? of[point] : "faint";
          (paths[kind] ??= []).push(`M${x[point]} ${y[point]}h0`);
        }
        const order = Object.keys(paths).sort((a, b) => (b === "faint") - (a === "faint") || Number(b) - Number(a));
        const made = order.map((kind) => svg("path", { class: kind === "faint" ? "faint" : `g${kind}`, d: paths[kind].join("") }));
        drawing.replaceChildren(...made, svg("path", { class: "at-point", d: "" }));
      });
      legend.replaceChildren(...Object.entries(names).sort((a, b) => Number(a[0]) - Number(b[0])).map(([kind, name]) => {
        const entry = make("li"), button = make("button"), dot = svg("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" });
        dot.append(svg("path", { class: `g${kind}`, d: "M5 5h0" }));
        button.type = "button";
        button.append(dot, named(name));
        button.setAttribute("aria-pressed", String(only === kind));
        button.addEventListener("click", () => {
          only = only === kind ? null : kind;
          draw();
          const again = all("button", legend)[Object.keys(names).indexOf(kind)];
          if (again) again.focus();
        });
        entry.append(button);
        return entry;
      }));
      one("#map-by").textContent = text;
    }

    function point(run, place) {
      at = place;
      drawings.forEach((drawing, other) => {
        const mark = one(".at-point", drawing), { x, y } = map.runs[other];
        mark.setAttribute("d", place === null ? "" : `M${x[place] - 14} ${y[place]}a14 14 0 1 0 28 0a14 14 0 1 0 -28 0`);
      });
      tip.hidden = place === null;
      if (place === null) return;
      const picture = map.picture[place], words = one("div", tip).children;
      one(".pic", tip).className = map.text ? "pic words" : picture === null ? "pic gone" : `pic i${picture}`;
      one(".pic", tip).textContent = map.text ? map.text[place] : "";
      words[0].textContent = byClass(place);
      words[1].textContent = map.name[place];
      words[2].textContent = (map.supers ? `${map.supers[map.super[place]]}; ` : "") + `nearest item ${map.runs[run].ok[place] ? "right" : "wrong"}`;
      const frame = drawings[run].getBoundingClientRect(), scale = frame.width / 1000;
      const left = frame.left + scrollX + map.runs[run].x[place] * scale, top = frame.top + scrollY + map.runs[run].y[place] * scale;
      const room = document.documentElement.clientWidth;
      tip.style.left = `${left + 290 > room ? Math.max(4, left - 290) : left + 20}px`;
      tip.style.top = `${top + 12}px`;
    }

    drawings.forEach((drawing, run) => {
      const { x, y } = map.runs[run];
      drawing.setAttribute("tabindex", "0");
      drawing.setAttribute("role", "application");
      drawing.setAttribute("aria-roledescription", "map");
      drawing.addEventListener("pointermove", (event) => {
        const frame = drawing.getBoundingClientRect();
        const here = [(event.clientX - frame.left) / frame.width * 1000, (event.clientY - frame.top) / frame.height * 1000];
        let best = null, least = 30 ** 2;
        for (let other = 0; other < x.length; other++) {
          const far = (x[other] - here[0]) ** 2 + (y[other] - here[1]) ** 2;
          if (far < least) [best, least] = [other, far];
        }
        if (best !== at) point(run, best);
      });
      drawing.addEventListener("pointerleave", () => point(run, null));
      drawing.addEventListener("blur", () => point(run, null));
      drawing.addEventListener("keydown", (event) => {
        const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
        if (event.key === "Escape") point(run, null);
        if (event.key === "Enter" && at !== null && inClass.has(byClass(at))) showClass(byClass(at));
        if (!way) return;
        event.preventDefault();
        const from = at === null ? [500, 500] : [x[at], y[at]];
        let best = null, least = Infinity;
        for (let other = 0; other < x.length; other++) {
          if (other === at) continue;
          const right = x[other] - from[0], below = y[other] - from[1];
          const ahead = right * way[0] + below * way[1], aside = Math.abs(right * way[1]) + Math.abs(below * way[0]);
          // from nowhere to the point nearest to the middle; then to the nearest within a right angle ahead
          if (at !== null && (ahead <= 0 || aside > ahead)) continue;
          const far = right ** 2 + below ** 2;
          if (far < least) [best, least] = [other, far];
        }
        if (best !== null) {
          point(run, best);
          said.textContent = `${byClass(best)}, ${(map.text ?? map.name)[best]}, nearest item ${map.runs[run].ok[best] ? "right" : "wrong"}`;
        }
      });
    });
    colour.addEventListener("change", () => { only = null; draw(); });
    wanted.addEventListener("input", draw);
    draw();
  }
})();
