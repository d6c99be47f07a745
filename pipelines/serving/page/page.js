// The search page: asks the service that it came from, and shows what is found. Nothing is loaded from elsewhere.
"use strict";

const element = (id) => document.getElementById(id);
let facts = {};
let latest = 0; // number of the search whose results are wanted: an earlier one may answer later

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function say(message, isError = false) {
  element("status").textContent = message;
  element("status").className = isError ? "error" : "";
}

// Ask the service; throws an Error with its message where it refuses.
async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  if (response.status === 401) element("token-form").hidden = false;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error || `the service answered ${response.status}`);
}

async function post(path, content) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(content) })).json();
}

async function search(request, text) {
  const number = ++latest;
  say("searching…");
  element("results").replaceChildren();
  element("query").hidden = text !== null;
  element("warning").textContent = "";
  try {
    const started = performance.now();
    const found = await request();
    if (number !== latest) return;
    const milliseconds = Math.round(performance.now() - started);
    say(`${found.results.length} ${found.target} in ${milliseconds} ms`);
    element("warning").textContent = found.warning && `The query is ${found.warning}.`;
    show(found, text);
  } catch (error) {
    if (number === latest) say(error.message, true);
  }
}

function searchText(text) {
  const where = element("where").value.trim();
  return search(() => post("search", where ? { text, where } : { text }), text);
}

function searchImage(file) {
  if (file.size > facts.max_image_bytes) return say(`the file is longer than ${facts.max_image_bytes} bytes`, true);
  const shown = element("query-image");
  URL.revokeObjectURL(shown.src);
  shown.src = URL.createObjectURL(file);
  const body = new FormData();
  body.append("image", file);
  const where = element("where").value.trim();
  const path = where ? `search/image?${new URLSearchParams({ where })}` : "search/image";
  return search(async () => (await ask(path, { method: "POST", body })).json(), null);
}

function show(found, text) {
  const list = element("results");
  list.className = found.target;
  list.replaceChildren(...found.results.map((result, place) => (
    found.target === "images" ? imageItem(result, place, text) : captionItem(result, place)
  )));
}

function score(result, place) {
  const bar = make("span");
  bar.style.width = `${100 * Math.max(0, Math.min(1, result.confidence ?? result.similarity))}%`;
  const figures = make("b", { textContent: result.similarity.toFixed(3) });
  const row = make("div", { className: "score" }, `${place + 1}.`, figures, make("div", { className: "bar" }, bar));
  if (result.confidence !== null) row.append(make("span", { textContent: `${Math.round(100 * result.confidence)} % sure` }));
  return row;
}

function captionItem(result, place) {
  return make("li", {}, score(result, place), make("figcaption", { textContent: result.caption }));
}

function imageItem(result, place, text) {
  const image = make("img", { alt: result.caption || result.id, title: result.id });
  const frame = make("div", { className: "frame" }, image);
  const figure = make("figure", {}, frame, score(result, place));
  figure.append(make("figcaption", { textContent: result.caption || result.id }));
  // By fetch, since an img element carries no token.
  ask(result.image_url.slice(1)).then((response) => response.blob()).then((blob) => {
    image.src = URL.createObjectURL(blob);
    image.onload = () => URL.revokeObjectURL(image.src);
  }).catch((error) => { frame.textContent = error.message; });
  if (facts.finds_regions && text !== null) figure.append(mapsButton(result, frame, text));
  return make("li", {}, figure);
}

// A button that asks where the words of the query are, and gives way to one for each of its phrases.
function mapsButton(result, frame, text) {
  const phrases = make("div", { className: "phrases" });
  const button = make("button", { type: "button", textContent: "where?" });
  button.onclick = async () => {
    button.disabled = true;
    try {
      const maps = await post("relevance", { text, image_id: result.id });
      // One scale for all, so that a phrase that is nowhere in particular looks flat.
      const highest = Math.max(...maps.phrases.flatMap((phrase) => phrase.cells));
      phrases.replaceChildren(...maps.phrases.map((phrase) => phraseButton(phrase, maps, highest, frame)));
      phrases.firstChild.click();
    } catch (error) {
      say(error.message, true);
      button.disabled = false;
    }
  };
  phrases.append(button);
  return phrases;
}

function phraseButton(phrase, maps, highest, frame) {
  const button = make("button", { type: "button", textContent: `${phrase.text} ${phrase.similarity.toFixed(2)}` });
  button.setAttribute("aria-pressed", "false");
  button.onclick = () => {
    const wasShown = button.getAttribute("aria-pressed") === "true";
    for (const other of button.parentNode.children) other.setAttribute("aria-pressed", "false");
    frame.querySelector("canvas")?.remove();
    frame.classList.toggle("mapped", !wasShown);
    if (wasShown) return;
    button.setAttribute("aria-pressed", "true");
    frame.append(heat(phrase.cells, maps, highest, frame.querySelector("img")));
  };
  return button;
}

// Matplotlib's inferno, whose steps rise in lightness.
const COLOURS = [
  [0, 0, 4], [40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164],
];

function heat(cells, maps, highest, image) {
  const small = make("canvas", { width: maps.columns, height: maps.rows });
  const pixels = new ImageData(maps.columns, maps.rows);
  cells.forEach((cell, place) => {
    const share = cell / highest;
    const at = share * (COLOURS.length - 1);
    const [low, high] = [COLOURS[Math.floor(at)], COLOURS[Math.ceil(at)]];
    const colour = low.map((value, channel) => value + (high[channel] - value) * (at % 1));
    pixels.data.set([...colour, 255 * (0.3 + 0.5 * share)], 4 * place);
  });
  small.getContext("2d").putImageData(pixels, 0, 0);
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  return canvas;
}

async function begin() {
  try {
    facts = await (await ask("model")).json();
  } catch (error) {
    say(error.message, true);
    return;
  }
  element("token-form").hidden = true;
  say("");
  element("model").textContent = `${facts.model}: ${facts.images.toLocaleString("en")} images, `
    + `${facts.captions.toLocaleString("en")} captions`;
  element("text").maxLength = facts.max_text;
  element("file").accept = facts.image_types.join(",");
  element("choose").hidden = !facts.takes_images;
  element("where").hidden = Object.keys(facts.columns).length === 0;
  element("where").title = Object.entries(facts.columns).map(([name, kind]) => `${name}: ${kind}`).join("\n");
  const text = new URLSearchParams(location.hash.slice(1)).get("text");
  if (text) {
    element("text").value = text;
    await searchText(text);
  }
}

element("search").onsubmit = (event) => {
  event.preventDefault();
  const text = element("text").value.trim();
  if (!text) return;
  history.replaceState(null, "", `#${new URLSearchParams({ text })}`);
  searchText(text);
};
element("token-form").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", element("token").value);
  begin();
};
element("file").onchange = () => {
  const [file] = element("file").files;
  element("file").value = "";
  if (file) searchImage(file);
};
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const [file] = event.dataTransfer.files;
  if (file && facts.takes_images) searchImage(file);
});
begin();
