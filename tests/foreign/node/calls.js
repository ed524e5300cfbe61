'use strict';
// Makes the calls that standard input describes, and prints how each ended as one line of JSON.
//
// Input: {address, channel: options of grpc-js, calls: [{id, method, request, due, deadline, cancel_after, metadata}]},
// with seconds for the three times: `due` after the start, the others after the call, or null.
// Output: {outcome, message, details, retry_after, text}: `outcome` has the fields of tests.reliability.history.Outcome, `details`
// those of the error by type, `text` the joined deltas of a stream.

const grpc = require('@grpc/grpc-js');
const { reflect } = require('./reflection');

const PATIENCE = 120; // seconds of deadline of a call without one, so that a lost answer shows
const later = (seconds) => new Promise((resolve) => (seconds ? setTimeout(resolve, 1000 * seconds) : resolve()));
const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of Python's time.monotonic

/** The record of a call that is being sent. */
function started({ id, method, request, deadline, cancel_after }) {
  const options = request.options ?? {};
  const beam_size = options.beam_size ?? 0;
  const sent = now();
  const asked = { id, method, texts: request.texts, beam_size, deadline, cancel_after };
  const ended = { first: null, ended: null, code: '', reason: '', results: [], version: '', request_id: '' };
  return { outcome: { ...asked, due: sent, sent, ...ended }, message: '', details: {}, retry_after: null, text: '' };
}

/** Note the end of a call, with the details of its error; a second end is a mistake that the record then shows. */
function end(record, status, messages) {
  const { outcome } = record;
  if (outcome.ended !== null) outcome.code = `ended twice: ${outcome.code}, then `;
  outcome.ended = now();
  outcome.code += grpc.status[status.code];
  record.message = status.details;
  outcome.request_id = String(status.metadata.get('x-request-id')[0] ?? '');
  record.retry_after = status.metadata.get('retry-after-ms')[0] ?? null;
  for (const packed of status.metadata.get('grpc-status-details-bin')) {
    const { code, details } = messages['google.rpc.Status'].deserialize(packed);
    if (grpc.status[code] !== grpc.status[status.code]) outcome.code += ` but ${code} in its details`;
    for (const { type_url, value } of details) {
      const name = type_url.split('/').pop();
      record.details[name.split('.').pop()] = messages[name].deserialize(value);
    }
  }
  outcome.reason = record.details.ErrorInfo?.reason ?? '';
}

function result(index, { status, hypotheses }) {
  return { index, code: grpc.status[status?.code ?? 0], text: hypotheses?.[0]?.text ?? '' };
}

/** Read the messages of a stream: model and version, deltas, results. */
function read(record, event) {
  record.outcome.first ??= now();
  if (event.start) record.outcome.version = event.start.version;
  if (event.delta) record.text += event.delta.text;
  if (event.done) record.outcome.results.push(result(event.done.text_index ?? 0, event.done.result));
}

/** Make one call; resolves when its status has come, with its record. */
function make(client, call, messages) {
  const record = started(call);
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries({ 'x-request-id': call.id, ...call.metadata })) metadata.set(name, value);
  const options = { deadline: Date.now() + 1000 * (call.deadline ?? PATIENCE) };
  return new Promise((resolve) => {
    const finish = (status) => {
      end(record, status, messages);
      setImmediate(resolve, record); // so that a second status would still be seen
    };
    let running;
    if (call.method === 'TranslateStream') {
      running = client.TranslateStream(call.request, metadata, options);
      running.on('data', (event) => read(record, event));
      running.on('error', () => {}); // the status has it too
    } else {
      running = client[call.method](call.request, metadata, options, (error, reply) => {
        if (error) return;
        record.outcome.version = reply.version;
        record.outcome.results = reply.results.map((each, index) => result(index, each));
      });
    }
    running.on('status', finish);
    if (call.cancel_after !== null) setTimeout(() => running.cancel(), 1000 * call.cancel_after);
  });
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const { address, channel, calls } = JSON.parse(Buffer.concat(chunks));
  const { messages, services } = await reflect(address);
  const { TranslationService } = services.lingon.translation.v1;
  const client = new TranslationService(address, grpc.credentials.createInsecure(), channel);
  await new Promise((resolve, reject) => {
    client.waitForReady(Date.now() + 1000 * PATIENCE, (error) => (error ? reject(error) : resolve()));
  });
  const sent = calls.map((call) => later(call.due).then(() => make(client, call, messages)));
  const records = await Promise.all(sent);
  client.close();
  for (const record of records) process.stdout.write(`${JSON.stringify(record)}\n`);
}

main();
