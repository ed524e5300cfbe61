// Calls the methods of DeepL's official client and prints the results as one line of JSON.
//
//   node deepl.mjs URL KEY FILE.txt

import fs from "node:fs";
import * as deepl from "deepl-node";

const [url, key, file] = process.argv.slice(2);
const client = new deepl.Translator(key, { serverUrl: url, maxRetries: 0 });
const found = {};

found.text = (await client.translateText("I would like a cup of tea.", null, "de")).text;
found.texts = (await client.translateText(["It is raining.", "How are you?"], "en", "de")).map((each) => each.text);
found.markup = (await client.translateText("I like <b>green</b> apples.", "en", "de", { tagHandling: "html" })).text;
found.sources = (await client.getSourceLanguages()).map((each) => each.code);
found.targets = (await client.getTargetLanguages()).map((each) => each.code);
found.limit = (await client.getUsage()).character.limit;
await client.translateDocument(file, `${file}.out.txt`, "en", "de");
found.document = fs.readFileSync(`${file}.out.txt`, "utf-8");
const newer = new deepl.DeepLClient(key, { serverUrl: url, maxRetries: 0 });
found.lists = [
  await client.listGlossaries(),
  await client.getGlossaryLanguagePairs(),
  await newer.listMultilingualGlossaries(),
  await newer.getAllStyleRules(),
  await newer.listTranslationMemories(),
];
found.variety = (await client.translateText("I would like a cup of tea.", "en", "en-US")).text;
found.unserved = await client.translateText("Tom", null, "fr").then(() => "", (error) => error.message);
const wrong = new deepl.Translator("wrong", { serverUrl: url, maxRetries: 0 });
found.refused = await wrong.translateText("Tom", "en", "de").then(() => "", (error) => error.constructor.name);
console.log(JSON.stringify(found));
