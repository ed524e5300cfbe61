'use strict';
// Keeps an idle HTTP/2 connection alive by pings: `node pings.js HOST:PORT SECONDS COUNT` sends a ping every SECONDS
// and prints {pongs, closed}; `closed` is the reason that the server gave for closing the connection, or null.

const http2 = require('node:http2');

const [address, seconds, count] = process.argv.slice(2);
const session = http2.connect(`http://${address}`);
let pongs = 0;
let closed = null;

function finish() {
  process.stdout.write(`${JSON.stringify({ pongs, closed })}\n`);
  process.exit();
}

session.on('goaway', (code, last, data) => {
  closed = data?.toString() ?? `code ${code}`;
});
session.on('error', () => {}); // the close comes too
session.on('close', finish);
setInterval(() => {
  session.ping((error) => {
    if (!error) pongs += 1;
    if (pongs === Number(count)) setTimeout(finish, 1000); // a GOAWAY comes behind the answer
  });
}, 1000 * seconds);
