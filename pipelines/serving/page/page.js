// The search page: asks the service that it came from, and shows what is found. Nothing is loaded from elsewhere.
"use strict";

const element = (id) => document.getElementById(id);
let facts = {};
let latest = 0; // number of the search whose results are wanted: an earlier one may answer later
let wanted = 0; // results of the query
const uploads = new Map(); // the files that were searched with, by their names in the address
const PAGE = 12;

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

// What is searched for is in the address (after #), so that it can be kept, sent, and gone back to:
// text, or like (an image of the gallery), or upload (a file, which no address can hold), and where.
function asked() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function go(query) {
  const where = element("where").value.trim();
  const hash = `#${new URLSearchParams(where ? { ...query, where } : query)}`;
  if (hash === location.hash) start();
  else location.hash = hash; // and start() as it changes
}

// Show the results of what the address asks for.
function start() {
  const { text = "", like, upload, where = "" } = asked();
  const uploaded = uploads.get(upload);
  const image = element("query-image");
  element("viewer").close();
  element("text").value = text;
  element("where").value = where;
  element("query").hidden = !(like || uploaded);
  image.removeAttribute("src");
  image.dataset.address = "";
  // One that cannot be read is not shown; the search says what is wrong, if it needs it.
  if (like) show(image, imageAddress(like)).catch(() => {});
  else if (uploaded) image.src = URL.createObjectURL(uploaded);
  for (const shown of element("results").querySelectorAll("img")) URL.revokeObjectURL(shown.src);
  element("results").replaceChildren();
  element("more").hidden = true;
  element("warning").hidden = true;
  wanted = 0;
  if (text || like || uploaded) more();
  else say("");
}

function request(k) {
  const { text, like, upload, where } = asked();
  const options = where ? { k, where } : { k };
  if (text) return post("search", { text, ...options });
  if (like) return post("search/like", { image_id: like, ...options });
  const body = new FormData();
  body.append("image", uploads.get(upload));
  return ask(`search/image?${new URLSearchParams(options)}`, { method: "POST", body }).then((answer) => answer.json());
}

// Ask for twelve results more than there are.
async function more() {
  const number = ++latest;
  wanted = Math.min(wanted + PAGE, facts.max_results);
  element("more").disabled = true;
  say("searching…");
  try {
    const started = performance.now();
    const found = await request(wanted);
    if (number !== latest) return;
    const most = found.results.length === facts.max_results ? ", the most that are shown" : "";
    say(`${found.results.length} ${found.target} in ${Math.round(performance.now() - started)} ms${most}`);
    element("warning").hidden = !found.warning;
    element("warning").textContent = found.warning;
    add(found);
    element("more").hidden = found.results.length < wanted || wanted === facts.max_results;
  } catch (error) {
    if (number === latest) say(error.message, true);
  } finally {
    element("more").disabled = false;
  }
}

function add(found) {
  const list = element("results");
  const shown = list.children.length;
  list.className = found.target;
  list.append(...found.results.slice(shown).map((result) => (
    found.target === "images" ? imageItem(result) : make("li", {}, score(result), caption(result))
  )));
  if (shown) list.children[shown]?.querySelector("button")?.focus();
}

// A bar as long as the hit is sure; without a confidence, as long as it is similar.
function score(result) {
  const { confidence, similarity } = result;
  const bar = make("span");
  bar.style.width = `${100 * Math.max(0, Math.min(1, confidence ?? similarity))}%`;
  const said = confidence === null ? similarity.toFixed(3) : `${Math.round(100 * confidence)} % sure`;
  const row = make("div", { className: "score", title: `similarity ${similarity.toFixed(3)}` });
  row.dataset.similarity = similarity;
  row.append(make("div", { className: "bar" }, bar), said);
  return row;
}

function caption(result) {
  return make("div", { className: "caption", textContent: result.caption || result.id });
}

// The columns of an image; a click on a value leaves images that have it too.
function columns(result) {
  const values = Object.entries(result.columns).flatMap(([name, value]) => [value].flat().flatMap((each) => {
    if (each === null) return []; // in a list
    const button = make("button", { type: "button", textContent: `${name}: ${each}`, title: "only images with this" });
    button.disabled = Number.isInteger(each) && !Number.isSafeInteger(each); // JavaScript has rounded it
    button.onclick = () => {
      const { where: _, ...query } = asked();
      const before = element("where").value.trim();
      const narrowed = /\bor\b/i.test(before) ? `(${before})` : before;
      element("where").value = [narrowed, condition(name, value, each)].filter(Boolean).join(" and ");
      go(query);
    };
    return button;
  }));
  return make("div", { className: "columns" }, ...values);
}

function condition(name, value, each) {
  const isWord = /^[a-z_]\w*$/i.test(name) && !/^(and|or|not|in|is|null|true|false|contains)$/i.test(name);
  const column = isWord ? name : `"${name}"`;
  if (typeof value === "boolean") return each ? column : `not ${column}`;
  const literal = typeof each !== "string" ? each : `'${each.replaceAll("'", "''")}'`;
  return `${column} ${Array.isArray(value) ? "contains" : "="} ${literal}`;
}

function imageAddress(id) {
  return `images/${encodeURIComponent(id)}`;
}

// Load an image by fetch, since an img element carries no token. Those of the list stay for the viewer.
async function show(image, address, isKept = false) {
  image.dataset.address = address;
  const blob = await (await ask(address)).blob();
  if (image.dataset.address !== address) return; // another one was asked for meanwhile
  const url = URL.createObjectURL(blob);
  if (!isKept) image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.src = url;
}

function imageItem(result) {
  const image = make("img", { alt: result.caption || result.id });
  const frame = make("button", { type: "button", className: "frame", title: result.id }, image);
  const item = make("li", {}, frame, score(result), caption(result), columns(result));
  item.result = result;
  frame.onclick = () => view(item);
  show(image, result.image_url.slice(1), true).catch((error) => { frame.textContent = error.message; });
  const { text } = asked();
  if (facts.finds_regions && text) item.append(mapsButton(result, frame, text));
  return item;
}

let viewed = null; // the item of the list that the viewer shows

function view(item) {
  if (!item) return;
  viewed = item;
  const { result } = item;
  const original = element("original");
  original.src = item.querySelector("img")?.src ?? "";
  original.alt = result.caption || result.id;
  const name = make("div", { className: "muted", textContent: result.caption ? result.id : "" });
  element("about").replaceChildren(caption(result), name, score(result), columns(result));
  element("previous").disabled = !item.previousSibling;
  element("next").disabled = !item.nextSibling;
  if (!element("viewer").open) element("viewer").showModal();
  show(original, `${result.image_url.slice(1)}?full=true`).catch((error) => {
    element("about").append(make("div", { className: "muted", textContent: error.message }));
  });
}

function searchImage(file) {
  if (file.size > facts.max_image_bytes) return say(`the file is longer than ${facts.max_image_bytes} bytes`, true);
  const name = file.name || "image";
  const upload = uploads.has(name) ? `${name} (${uploads.size + 1})` : name;
  uploads.set(upload, file);
  go({ upload });
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
  element("model").textContent = `${facts.model}: ${facts.images.toLocaleString("en")} images`
    + (facts.captions ? `, ${facts.captions.toLocaleString("en")} captions` : "");
  element("text").maxLength = facts.max_text;
  element("file").accept = facts.image_types.join(",");
  element("choose").hidden = !facts.takes_images;
  const [, ...names] = Object.keys(facts.columns);
  element("where").placeholder = names.length ? `only if: ${names.join(", ")}` : "only if: image contains '2024/'";
  element("where").title = Object.entries(facts.columns).map(([name, kind]) => `${name}: ${kind}`).join("\n");
  start();
}

// The arrows go from image to image: in the list to its neighbours, in the viewer to the one before or after.
function arrows(event) {
  const items = [...element("results").children];
  const place = items.indexOf(document.activeElement.closest("li"));
  const right = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (element("viewer").open) {
    if (right) view(right > 0 ? viewed.nextSibling : viewed.previousSibling);
  } else if (event.key === "/" && document.activeElement.tagName !== "INPUT") {
    event.preventDefault();
    element("text").select();
  } else if (place >= 0) {
    const row = items.filter((item) => item.offsetTop === items[0].offsetTop).length;
    const step = right ?? { ArrowUp: -row, ArrowDown: row }[event.key];
    if (!step) return;
    event.preventDefault();
    items[place + step]?.querySelector("button")?.focus();
  }
}

element("search").onsubmit = (event) => {
  event.preventDefault();
  const text = element("text").value.trim();
  const { text: _, where: __, ...image } = asked();
  if (text) go({ text });
  else if (image.like || image.upload) go(image); // with another condition
};
element("more").onclick = more;
element("choose").onclick = () => element("file").click();
element("previous").onclick = () => view(viewed.previousSibling);
element("next").onclick = () => view(viewed.nextSibling);
element("like").onclick = () => go({ like: viewed.result.id });
element("close").onclick = () => element("viewer").close();
element("viewer").onclick = (event) => { if (event.target === element("viewer")) element("viewer").close(); };
element("viewer").onclose = () => viewed?.querySelector("button")?.focus();
document.addEventListener("keydown", arrows);
window.addEventListener("hashchange", start);
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
document.addEventListener("paste", (event) => {
  const [file] = event.clipboardData.files;
  if (file && facts.takes_images) searchImage(file);
});
begin();
