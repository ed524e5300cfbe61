'use strict';
// Sends the requests that standard input describes, one after the other, by Node's own HTTP clients: what reaches a
// gRPC port besides gRPC. Prints how each ended as one line of JSON.
//
// Input: {address, requests: [{protocol: 'h1' or 'h2', headers, body: base64}]}. A line of output is {status, headers,
// trailers, bytes, error, seconds}: `error` is that of the stream or the connection, null without one.

const http = require('node:http');
const http2 = require('node:http2');

const PATIENCE = 5000; // milliseconds until a request without an end is given up

function blank() {
  return { status: null, headers: {}, trailers: {}, bytes: 0, error: null };
}

/** One request on an HTTP/2 connection that others share. */
function overHttp2(session, { headers }, body) {
  return new Promise((resolve) => {
    const found = blank();
    const stream = session.request(headers);
    stream.setTimeout(PATIENCE, () => {
      found.error = 'no end';
      stream.close(http2.constants.NGHTTP2_CANCEL);
    });
    stream.on('response', (received) => {
      found.status = received[':status'];
      found.headers = { ...received };
    });
    stream.on('trailers', (received) => {
      found.trailers = { ...received };
    });
    stream.on('data', (data) => {
      found.bytes += data.length;
    });
    stream.on('error', (error) => {
      found.error ??= error.message;
    });
    stream.on('close', () => resolve(found));
    stream.end(body);
  });
}

/** One HTTP/1.1 request on a connection of its own. */
function overHttp1(address, { headers }, body) {
  return new Promise((resolve) => {
    const found = blank();
    const { ':method': method, ':path': path, ...others } = headers;
    const request = http.request(`http://${address}${path}`, { method, headers: others, timeout: PATIENCE });
    request.on('response', (reply) => {
      found.status = reply.statusCode;
      reply.resume();
      reply.on('end', () => resolve(found));
    });
    request.on('timeout', () => request.destroy(new Error('no end')));
    request.on('error', (error) => resolve({ ...found, error: error.message }));
    request.end(body);
  });
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const { address, requests } = JSON.parse(Buffer.concat(chunks));
  const session = http2.connect(`http://${address}`);
  for (const request of requests) {
    const body = Buffer.from(request.body, 'base64');
    const send = request.protocol === 'h2' ? overHttp2(session, request, body) : overHttp1(address, request, body);
    process.stdout.write(`${JSON.stringify(await send)}\n`);
  }
  session.close();
}

main();
