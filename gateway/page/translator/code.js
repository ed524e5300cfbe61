// The request for the text as curl, Python and JavaScript send it.

import { get } from "./dom.js";

// body: of the request
export function showCode(body) {
  const headers = { "content-type": "application/json", ...(get("key").value && { authorization: "Bearer KEY" }) };
  const url = new URL("v1/translate", location).href, json = JSON.stringify(body);
  get("code-curl").textContent = [
    `curl ${url}`, ...Object.entries(headers).map(([name, value]) => `-H '${name}: ${value}'`),
    `-d '${json.replaceAll("'", "'\\''")}'`].join(" \\\n  ");
  get("code-python").textContent = [
    "import json, urllib.request", "",
    `request = urllib.request.Request(${JSON.stringify(url)}, json.dumps(${json}).encode(), ${JSON.stringify(headers)})`,
    'print(json.load(urllib.request.urlopen(request))["results"][0]["hypotheses"][0]["text"])'].join("\n");
  get("code-javascript").textContent = [
    `const reply = await fetch(${JSON.stringify(url)}, {`, `  method: "POST", headers: ${JSON.stringify(headers)},`,
    `  body: JSON.stringify(${json}),`, "});", "console.log((await reply.json()).results[0].hypotheses[0].text);"].join("\n");
}
