// Calls the methods of DeepL's official client and prints the results as one line of JSON.
//
//   node deepl.mjs URL KEY FILE.txt FILE.tmx

import fs from "node:fs";
import * as deepl from "deepl-node";

const [url, key, file, tmx] = process.argv.slice(2);
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
found.pairs = await client.getGlossaryLanguagePairs();
found.styles = await newer.getAllStyleRules();

const terms = (entries) => new deepl.GlossaryEntries({ entries });
const cup = "I would like a cup of tea.";
const single = await client.createGlossary("Single", "en", "de", terms({ cup: "Schale" }));
const csv = await client.createGlossaryWithCsv("CSV", "en", "de", Buffer.from("cup,Humpen,en,de\n"));
found.single = [single.name, single.ready, single.sourceLang, single.targetLang, single.entryCount];
found.got = (await client.getGlossary(single.glossaryId)).name;
found.entries = (await client.getGlossaryEntries(csv)).entries();
found.listed = (await client.listGlossaries()).map((each) => each.name).sort();
found.withTerms = (await client.translateText(cup, "en", "de", { glossary: single })).text;
await client.translateDocument(file, `${file}.terms.txt`, "en", "de", { glossary: single });
found.documentWithTerms = fs.readFileSync(`${file}.terms.txt`, "utf-8");
await client.deleteGlossary(csv);

const dictionary = (sourceLangCode, targetLangCode, entries) => ({ sourceLangCode, targetLangCode, entries: terms(entries) });
const counts = (glossary) => glossary.dictionaries.map((each) => `${each.sourceLangCode}-${each.targetLangCode} ${each.entryCount}`);
const both = await newer.createMultilingualGlossary("Both", [
  dictionary("en", "de", { tea: "Kaffee" }),
  dictionary("de", "en", { Kaffee: "tea" }),
]);
const id = both.glossaryId;
found.created = counts(both);
found.renamed = (await newer.updateMultilingualGlossaryName(id, "New name")).name;
found.edited = counts(await newer.updateMultilingualGlossaryDictionary(id, dictionary("en", "de", { milk: "Milch" })));
found.editedWithCsv = counts(await newer.updateMultilingualGlossaryDictionaryWithCsv(id, "en", "de", "sea,Meer"));
found.replaced = (await newer.replaceMultilingualGlossaryDictionary(id, dictionary("de", "en", { a: "b", c: "d" }))).entryCount;
found.dictionary = (await newer.getMultilingualGlossaryDictionaryEntries(id, "en", "de")).entries.entries();
found.withBoth = (await newer.translateText(cup, "en", "de", { glossaryIds: [single, both] })).text;
await newer.deleteMultilingualGlossaryDictionary(id, "de", "en");
found.left = counts(await newer.getMultilingualGlossary(id));
found.names = (await newer.listMultilingualGlossaries()).map((each) => each.name).sort();
await newer.deleteMultilingualGlossary(id);
await client.deleteGlossary(single);
found.gone = await client.getGlossary(id).then(() => "", (error) => error.constructor.name);

const job = await newer.importTranslationMemoryFromFilepath(tmx, { displayName: "Mine" });
const memory = await newer.getTranslationMemory(job.results[0].translationMemoryId);
found.memory = [memory.name, memory.sourceLanguage, memory.targetLanguages, memory.segmentCount];
found.memories = (await newer.listTranslationMemories(0, 25)).map((each) => each.name);
const page = await newer.listTranslationMemorySegments(memory, { pageSize: 1 });
const rest = await newer.listTranslationMemorySegments(memory, { pageCursor: page.nextPageCursor });
found.segments = [...page.segments, ...rest.segments].map((each) => [each.sourceText, each.targets[0].targetText]);
const options = { translationMemory: memory, translationMemoryThreshold: 100 };
found.remembered = (await newer.translateText(cup, "en", "de", options)).text;
await newer.exportTranslationMemoryToFilepath(memory, `${tmx}.out.tmx`);
found.exported = fs.readFileSync(`${tmx}.out.tmx`, "utf-8").includes("<seg>Gut &amp; schlecht.</seg>");
await newer.deleteTranslationMemory(memory);
found.memoriesLeft = await newer.listTranslationMemories();

found.variety = (await client.translateText("I would like a cup of tea.", "en", "en-US")).text;
found.unserved = await client.translateText("Tom", null, "fr").then(() => "", (error) => error.message);
const wrong = new deepl.Translator("wrong", { serverUrl: url, maxRetries: 0 });
found.refused = await wrong.translateText("Tom", "en", "de").then(() => "", (error) => error.constructor.name);
console.log(JSON.stringify(found));
