// Marian's engine, compiled to WebAssembly in the package @browsermt/bergamot-translator, as a program: it answers lines.
//
// The first line that it writes has the version of the package, or the error that it is not installed. Every line that
// it reads is an object, and it writes one for each, in order:
//   {"load": {"model": PATH, "vocabularies": [PATH, ...], "shortlist": PATH or null, "options": YAML}}  -> {}
//   {"translate": [TEXT, ...]}  -> {"translations": [TEXT, ...]}, by the model that was loaded last
// What goes wrong is {"error": MESSAGE}.
//
// Each text is translated alone: with a shortlist, the engine unites the candidates of a batch. The worker of the package
// is not used, since it sets options of its own, the cost of hypotheses among them.

"use strict";

const { readFileSync } = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const vm = require("node:vm");

const PACKAGE = "@browsermt/bergamot-translator";
const PRODUCTS = {
  int8_prepare_a: "int8PrepareAFallback",
  int8_prepare_b: "int8PrepareBFallback",
  int8_prepare_b_from_transposed: "int8PrepareBFromTransposedFallback",
  int8_prepare_b_from_quantized_transposed: "int8PrepareBFromQuantizedTransposedFallback",
  int8_prepare_bias: "int8PrepareBiasFallback",
  int8_multiply_and_add_bias: "int8MultiplyAndAddBiasFallback",
  int8_select_columns_of_b: "int8SelectColumnsOfBFallback",
}; // that the module imports, and the names under which it exports the portable ones

let cause = ""; // the first error that the engine prints, before it aborts

function note(line) {
  const error = /Error: (.*)/.exec(line);
  if (error !== null && cause === "") cause = error[1];
}

function message(error) {
  return cause || String((error && error.message) || error);
}

function start(folder) {
  return new Promise((resolve, reject) => {
    const binary = readFileSync(path.join(folder, "worker", "bergamot-translator-worker.wasm"));
    const code = path.join(folder, "worker", "bergamot-translator-worker.js");
    globalThis.self = globalThis;
    globalThis.importScripts = () => {};
    globalThis.location = { href: `file://${code}` };
    globalThis.Module = {
      print: note,
      printErr: note,
      onAbort: reject,
      onRuntimeInitialized: () => resolve(globalThis.Module),
      instantiateWasm: (imports, accept) => {
        const own = (name) => (...values) => globalThis.Module.asm[name](...values);
        const products = Object.fromEntries(Object.entries(PRODUCTS).map(([name, portable]) => [name, own(portable)]));
        WebAssembly.instantiate(binary, { ...imports, wasm_gemm: products }).then(
          ({ instance }) => accept(instance),
          reject,
        );
        return {};
      },
    };
    vm.runInThisContext(readFileSync(code, "utf8"), { filename: code });
  });
}

class Engine {
  constructor(module) {
    this.module = module;
    this.service = new module.BlockingService({ cacheSize: 0 });
    this.model = null;
  }

  load({ model, vocabularies, shortlist, options }) {
    if (this.model !== null) this.model.delete();
    const list = new this.module.AlignedMemoryList();
    for (const each of vocabularies) list.push_back(this.memory(readFileSync(each), 64));
    const listed = this.memory(shortlist === null ? Buffer.alloc(0) : readFileSync(shortlist), 64);
    this.model = new this.module.TranslationModel(options, this.memory(readFileSync(model), 256), listed, list, null);
    return {};
  }

  translate(texts) {
    return { translations: texts.map((text) => this.one(text)) };
  }

  one(text) {
    const texts = new this.module.VectorString();
    texts.push_back(text);
    const options = new this.module.VectorResponseOptions();
    options.push_back({ alignment: false, html: false, qualityScores: false });
    const responses = this.service.translate(this.model, texts, options);
    const found = responses.get(0).getTranslatedText();
    for (const each of [texts, options, responses]) each.delete();
    return found;
  }

  memory(content, alignment) {
    const memory = new this.module.AlignedMemory(content.length, alignment);
    memory.getByteArrayView().set(content);
    return memory;
  }

  answer(line) {
    const { load, translate } = JSON.parse(line);
    return load === undefined ? this.translate(translate) : this.load(load);
  }
}

function write(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

async function main() {
  const found = require.resolve(`${PACKAGE}/package.json`, { paths: [process.cwd(), ...require.resolve.paths(PACKAGE)] });
  const engine = new Engine(await start(path.dirname(found)));
  write({ version: JSON.parse(readFileSync(found, "utf8")).version });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      write(engine.answer(line));
    } catch (error) {
      write({ error: message(error) });
    }
  }
}

main().catch((error) => write({ error: message(error).split("\n")[0] }));
