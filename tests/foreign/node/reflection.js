'use strict';
// The services of a server as the server describes them: no proto file of Lingon is read here.

const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const FORMAT = { keepCase: true, longs: Number, enums: String, oneofs: true };
const PROTOCOL = 'build/proto/grpc/reflection/v1/reflection.proto';
const DETAILS = 'google.rpc.ErrorInfo'; // its file has all messages in the details of errors

/** Ask for every service. Returns their names, constructors of clients, and the decoders of all messages by name. */
async function reflect(address) {
  const stream = openStream(address);
  try {
    const { service } = (await stream.ask({ list_services: '*' })).list_services_response;
    const names = service.map((each) => each.name);
    const files = new Map();
    for (const symbol of [...names, DETAILS]) {
      const reply = await stream.ask({ file_containing_symbol: symbol });
      if (reply.error_response) throw new Error(`reflection of ${symbol}: ${reply.error_response.error_message}`);
      for (const file of reply.file_descriptor_response.file_descriptor_proto) files.set(file.toString('latin1'), file);
    }
    const messages = protoLoader.loadFileDescriptorSetFromBuffer(fileDescriptorSet([...files.values()]), FORMAT);
    return { names, messages, services: grpc.loadPackageDefinition(messages) };
  } finally {
    stream.close();
  }
}

/** A stream of requests, each of which waits for its reply. */
function openStream(address) {
  const file = path.join(path.dirname(require.resolve('@grpc/reflection/package.json')), PROTOCOL);
  const { ServerReflection } = grpc.loadPackageDefinition(protoLoader.loadSync(file, FORMAT)).grpc.reflection.v1;
  const client = new ServerReflection(address, grpc.credentials.createInsecure());
  const stream = client.ServerReflectionInfo();
  const waiting = [];
  stream.on('data', (reply) => waiting.shift().resolve(reply));
  stream.on('error', (error) => waiting.splice(0).forEach(({ reject }) => reject(error)));
  const ask = (request) =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      stream.write(request);
    });
  const close = () => {
    stream.end();
    client.close();
  };
  return { ask, close };
}

/** The message FileDescriptorSet: each file is field 1, with its length as a varint. */
function fileDescriptorSet(files) {
  const parts = files.flatMap((file) => {
    const head = [(1 << 3) | 2];
    let rest = file.length;
    for (; rest > 127; rest >>= 7) head.push((rest & 127) | 128);
    return [Buffer.from([...head, rest]), file];
  });
  return Buffer.concat(parts);
}

module.exports = { reflect };
