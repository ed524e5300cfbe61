// Shows openapi.json: each operation with its body and replies, and each message with its fields.

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

function row(...cells) {
  const line = make("tr");
  for (const each of cells) {
    const cell = make("td");
    cell.append(each);
    line.append(cell);
  }
  return line;
}

function operation(path, method, { summary, requestBody, responses }) {
  const box = make("section", "", "operation");
  box.append(make("h2", `${method.toUpperCase()} ${path}`), make("p", summary));
  const table = make("table");
  const content = (part) => Object.values(part?.content ?? {})[0]?.schema;
  if (requestBody) table.append(row("body", typeOf(content(requestBody))));
  for (const [status, reply] of Object.entries(responses)) table.append(row(status, typeOf(content(reply)), reply.description));
  box.append(table);
  return box;
}

function message(name, schema) {
  const box = make("section", "", "operation");
  box.id = name;
  box.append(make("h3", name), make("p", schema.description ?? ""));
  const table = make("table");
  for (const [field, one] of Object.entries(schema.properties ?? {})) table.append(row(field, typeOf(one), one.description ?? ""));
  box.append(table);
  return box;
}

const api = await (await fetch("openapi.json")).json();
get("description").textContent = api.info.description;
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, found] of Object.entries(methods)) get("operations").append(operation(path, method, found));
}
for (const [name, schema] of Object.entries(api.components.schemas)) get("schemas").append(message(name, schema));
