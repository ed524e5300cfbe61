// Shows openapi.json: each operation with its body and replies, and each message with its fields or values.

const get = (id) => document.getElementById(id);
const make = (tag, text = "", name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });

const last = (reference) => reference.split("/").pop();

function typeOf(schema = {}) {
  if (schema.$ref) {
    const link = make("a", last(schema.$ref));
    link.href = `#${last(schema.$ref)}`;
    return link;
  }
  if (schema.type === "array") {
    const several = make("span", "list of ");
    several.append(typeOf(schema.items));
    return several;
  }
  return make("span", schema.enum ? "one of " + schema.enum.join(", ") : [schema.type, schema.format].filter(Boolean).join(" "));
}

// The text, with what stands between grave accents as code.
function prose(tag, text = "") {
  const whole = make(tag);
  whole.append(...text.split("`").map((part, place) => (place % 2 ? make("code", part) : part)));
  return whole;
}

function row(name, ...cells) {
  const line = make("tr"), head = make("th", name);
  head.scope = "row";
  line.append(head);
  for (const each of cells) {
    const cell = make("td");
    cell.append(each);
    line.append(cell);
  }
  return line;
}

// The messages of a body or a reply, each with its media type if there are several.
function messages(part) {
  const kinds = Object.entries(part?.content ?? {}), whole = make("span");
  kinds.forEach(([media, { schema }], place) =>
    whole.append(place ? ", or " : "", typeOf(schema), kinds.length > 1 ? ` as ${media}` : ""));
  return whole;
}

function operation(path, method, { summary, requestBody, responses }) {
  const box = make("section", "", "operation");
  box.append(make("h2", `${method.toUpperCase()} ${path}`), prose("p", summary));
  const table = make("table");
  if (requestBody) table.append(row("body", messages(requestBody)));
  for (const [status, reply] of Object.entries(responses)) table.append(row(status, messages(reply), prose("span", reply.description)));
  box.append(table);
  return box;
}

function message(name, schema) {
  const box = make("section", "", "operation");
  box.id = name;
  box.append(make("h3", name), prose("p", schema.description));
  const table = make("table");
  for (const [field, one] of Object.entries(schema.properties ?? {})) table.append(row(field, typeOf(one), prose("span", one.description)));
  (schema.enum ?? []).forEach((value, place) => table.append(row(value, prose("span", schema["x-enum-descriptions"]?.[place]))));
  box.append(table);
  return box;
}

function show(api) {
  get("description").textContent = api.info.description;
  get("messages").hidden = false;
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, found] of Object.entries(methods)) get("operations").append(operation(path, method, found));
  }
  for (const [name, schema] of Object.entries(api.components.schemas)) get("schemas").append(message(name, schema));
  if (location.hash) get(location.hash.slice(1))?.scrollIntoView(); // the browser looked for it before it was there
}

fetch("openapi.json").then((reply) => reply.json()).then(show, () => {
  get("description").textContent = "The server does not answer. Reload the page to try again.";
});
