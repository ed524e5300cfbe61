// The attention of a sentence and its translation, as a table with one cell for each pair of tokens.

const ROWS = { CROSS: "target", ENCODER: "source", DECODER: "target" };
const COLUMNS = { CROSS: "source", ENCODER: "source", DECODER: "target" };

const shown = (piece) => piece.piece.replace(/^\u2581/, "") || "▁";

export class AttentionTable {
  // call: sends a request to a path of the API and returns its reply
  constructor(call) {
    this.call = call;
    this.get = (id) => document.getElementById(`matrix-${id}`);
    this.table = document.getElementById("matrix");
    this.sentences = [];
    this.kept = new Map(); // replies by kind and sentence
    for (const id of ["sentence", "kind"]) this.get(id).addEventListener("change", () => this.load());
    for (const id of ["layer", "head"]) this.get(id).addEventListener("change", () => this.draw());
    document.getElementById("attention").addEventListener("toggle", () => this.load());
  }

  // sentences: none if there is no translation
  // languages: as a request names them
  show(sentences, languages) {
    this.sentences = sentences;
    this.languages = languages;
    this.kept.clear();
    const select = this.get("sentence"), before = Math.min(select.selectedIndex, sentences.length - 1);
    select.replaceChildren(...sentences.map(({ source }, index) => new Option(`${index + 1}: ${source.slice(0, 40)}`, index)));
    select.selectedIndex = Math.max(before, 0);
    this.load();
  }

  empty(reason) {
    this.result = null;
    this.table.replaceChildren();
    this.get("state").textContent = reason;
  }

  async load() {
    if (!document.getElementById("attention").open) return;
    if (!this.sentences.length) return this.empty("There is no translation.");
    const sentence = this.sentences[this.get("sentence").value];
    const kind = this.get("kind").value;
    const key = this.wanted = JSON.stringify([kind, sentence.source, sentence.target]);
    try {
      if (!this.kept.has(key)) {
        const pairs = [{ source: sentence.source, target: sentence.target }];
        const request = { pairs, ...this.languages, attention: { kinds: [`ATTENTION_KIND_${kind}`] } };
        this.kept.set(key, (await this.call("v1/score", request)).results[0]);
      }
      if (key !== this.wanted) return; // another one was chosen meanwhile
      this.result = this.kept.get(key);
      if (this.result.status?.code) throw new Error(this.result.status.message);
      this.get("state").textContent = "";
    } catch (error) {
      if (key === this.wanted) this.empty(error.message);
      return;
    }
    this.offer("layer", this.result.attention.map((each) => each.layer ?? 0));
    this.offer("head", this.result.attention.map((each) => each.head ?? 0));
    this.draw();
  }

  // Fill a list with different numbers, and keep its choice.
  offer(id, numbers) {
    const select = this.get(id);
    const before = select.value;
    const options = [...new Set(numbers)].map((number) => new Option(String(number + 1), number));
    if (id === "head" && options.length > 1) options.unshift(new Option("mean", "mean"));
    select.replaceChildren(...options);
    if ([...select.options].some((each) => each.value === before)) select.value = before;
    else if (id === "layer" && !before) select.selectedIndex = select.options.length - 1;
  }

  draw() {
    if (!this.result) return;
    const layer = Number(this.get("layer").value);
    const head = this.get("head").value;
    const some = this.result.attention.filter(
      (each) => (each.layer ?? 0) === layer && (head === "mean" || (each.head ?? 0) === Number(head)));
    const kind = this.get("kind").value;
    const rows = this.pieces(ROWS[kind], false), columns = this.pieces(COLUMNS[kind], kind === "DECODER");
    const width = some[0].columns;
    const weight = (row, column) =>
      some.reduce((sum, each) => sum + each.weights[row * width + column], 0) / some.length;
    const head_row = document.createElement("tr");
    head_row.append(document.createElement("td"), ...columns.map((name) => cell("th", name, "col")));
    const top = document.createElement("thead");
    top.append(head_row);
    const body = document.createElement("tbody");
    rows.forEach((name, row) => {
      const line = document.createElement("tr");
      line.append(cell("th", name, "row"), ...columns.map((other, column) => {
        const value = weight(row, column), box = document.createElement("td");
        box.style.setProperty("--weight", value.toFixed(4));
        box.dataset.weight = value;
        box.title = `${name} ← ${other}: ${value.toFixed(3)}`;
        return box;
      }));
      body.append(line);
    });
    this.table.replaceChildren(top, body);
  }

  // shifted: the tokens that a step of the decoder has read, the begin token first
  pieces(side, shifted) {
    const names = this.result[`${side}Pieces`].map(shown);
    return shifted ? ["begin", ...names.slice(0, -1)] : names;
  }
}

function cell(tag, text, scope) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.scope = scope;
  return made;
}
