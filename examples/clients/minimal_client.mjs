// A client of a syft worker in JavaScript, for Node 20 or newer, without any package.
//
// It searches by tag, reads public tensors and calls plans that a worker holds.  It follows
// docs/wire.md, section "Lines", as minimal_client.py beside it does, and leaves out the same.
//
//     node examples/clients/minimal_client.mjs ws://127.0.0.1:8777 '#digits'
//     node examples/clients/minimal_client.mjs wss://host:8777 '#digits' \
//         --token-file token.txt --fingerprint sha256:… --call '#mean'

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const MOST = 2 ** 30; // bytes of a message that this client takes

// What went wrong between this client and the worker, in one sentence.
export class ClientError extends Error {
  name = "ClientError";
}

// The worker does not let this client in; `code` is for programs.
export class Refused extends ClientError {
  name = "Refused";
  constructor(code, reason) {
    super(`the worker refuses this client (${code}): ${reason}`);
    this.code = code;
  }
}

// A request failed at the worker: an ErrorCode, and the arguments of the exception.
export class Failure extends ClientError {
  name = "Failure";
  static names = { 135: "object not found", 151: "permission denied", 159: "plans not allowed" };
  constructor(code, args) {
    super(`${Failure.names[code] ?? `error ${code}`}: ${args.join(", ")}`);
    this.code = code;
    this.arguments = args;
  }
}

function expect(holds, otherwise) {
  if (!holds) throw new ClientError(otherwise);
}

// ----------------------------------------------------------------------------------- MessagePack

// Integers beyond 2 ** 53 are BigInts, in both directions.
export function packed(value) {
  if (value === null) return Buffer.of(0xc0);
  if (typeof value === "boolean") return Buffer.of(value ? 0xc3 : 0xc2);
  if (typeof value === "number" || typeof value === "bigint") {
    if (value >= 0 && value < 128) return Buffer.of(Number(value));
    const out = Buffer.of(value < 0 ? 0xd3 : 0xcf, 0, 0, 0, 0, 0, 0, 0, 0);
    if (value < 0) out.writeBigInt64BE(BigInt(value), 1);
    else out.writeBigUInt64BE(BigInt(value), 1);
    return out;
  }
  const data = Array.isArray(value) ? Buffer.concat(value.map(packed)) : Buffer.from(value);
  const tag = typeof value === "string" ? 0xdb : 0xc6;
  const head = Buffer.of(Array.isArray(value) ? 0xdd : tag, 0, 0, 0, 0);
  head.writeUInt32BE(Array.isArray(value) ? value.length : data.length, 1);
  return Buffer.concat([head, data]);
}

export function unpacked(data) {
  let at = 0;
  const bytes = (size) => {
    at += size;
    expect(at <= data.length, "a header ends too early");
    return data.subarray(at - size, at);
  };
  const unsigned = (size) => bytes(size).readUIntBE(0, size);
  const safe = (big) => (big >= -(2n ** 53n) && big <= 2n ** 53n ? Number(big) : big);
  const words = { 0xc0: null, 0xc2: false, 0xc3: true };
  const numbers = {
    0xca: () => bytes(4).readFloatBE(),
    0xcb: () => bytes(8).readDoubleBE(),
    0xcc: () => unsigned(1),
    0xcd: () => unsigned(2),
    0xce: () => unsigned(4),
    0xcf: () => safe(bytes(8).readBigUInt64BE()),
    0xd0: () => bytes(1).readInt8(),
    0xd1: () => bytes(2).readInt16BE(),
    0xd2: () => bytes(4).readInt32BE(),
    0xd3: () => safe(bytes(8).readBigInt64BE()),
  };
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const text = (size) => utf8.decode(bytes(size));
  const array = (size, depth) => {
    expect(depth < 200 && size <= data.length - at, "an array is nested too deep, or too long");
    return Array.from({ length: size }, () => value(depth + 1));
  };
  const value = (depth) => {
    const tag = unsigned(1);
    if (tag < 0x80 || tag >= 0xe0) return tag < 0x80 ? tag : tag - 256;
    if (tag in words) return words[tag];
    if (tag in numbers) return numbers[tag]();
    if (tag >= 0x90 && tag < 0xa0) return array(tag & 15, depth);
    if (tag >= 0xa0 && tag < 0xc0) return text(tag & 31);
    if (tag >= 0xc4 && tag <= 0xc6) return bytes(unsigned(1 << (tag - 0xc4)));
    if (tag >= 0xd9 && tag <= 0xdb) return text(unsigned(1 << (tag - 0xd9)));
    expect(tag === 0xdc || tag === 0xdd, `a header holds what no value begins with: ${tag}`);
    return array(unsigned(tag === 0xdc ? 2 : 4), depth);
  };
  const whole = value(0);
  expect(at === data.length, "a header has more than one value");
  return whole;
}

// ------------------------------------------------------------------------------------------ LZ4

// Decompress one LZ4 frame of `size` bytes; its checksums are left to TLS and TCP.
export function unlz4(data, size) {
  expect(data.readUInt32LE(0) === 0x184d2204 && data[4] >> 6 === 1, "a buffer is no LZ4 frame");
  const flags = data[4];
  const out = Buffer.alloc(size);
  let [at, end] = [7 + (flags & 8 ? 8 : 0) + (flags & 1 ? 4 : 0), 0];
  const copy = (from, start, count) => {
    expect(end + count <= size && start >= 0 && start + count <= from.length, "an LZ4 block lies");
    from.copy(out, end, start, start + count);
    end += count;
  };
  const block = (at, stop) => {
    const length = (short) => {
      let total = short;
      for (let more = short === 15; more; at += 1) {
        expect(at < stop, "an LZ4 block lies");
        total += data[at];
        more = data[at] === 255;
      }
      return total;
    };
    while (at < stop) {
      const token = data[at++];
      const literals = length(token >> 4);
      copy(data, at, literals);
      at += literals;
      if (at >= stop) return;
      const offset = data.readUInt16LE(at);
      at += 2;
      let count = length(token & 15) + 4;
      expect(offset > 0 && offset <= end && end + count <= size, "an LZ4 block lies");
      for (let some = 0; count > 0; count -= some) {
        some = Math.min(count, offset);
        copy(out, end - offset, some);
      }
    }
  };
  for (;;) {
    const word = data.readUInt32LE(at);
    const length = word & 0x7fffffff;
    expect(at + 4 + length <= data.length, "an LZ4 frame ends too early");
    if (!length) break;
    if (word >>> 31) copy(data, at + 4, length);
    else block(at + 4, at + 4 + length);
    at += 4 + length + (flags & 16 ? 4 : 0);
  }
  expect(end === size, "a buffer has another size than its frame says");
  return out;
}

// --------------------------------------------------------------------------- WebSocket (RFC 6455)

const [TEXT, BINARY, CLOSE, PING, PONG] = [1, 2, 8, 9, 10];
const isLoopback = (host) => /^(::ffff:)?127\.|^::1$/.test(host ?? "");

// A connected socket: encrypted for wss://, and plain on this machine alone.
function dial(address, fingerprint) {
  const [, path] = /^unix:\/\/(.+)$/.exec(address) ?? [];
  const [, scheme, name, port] = /^(wss?):\/\/(\[[^\]]+\]|[^:/]+):(\d+)\/?$/.exec(address) ?? [];
  expect(path || scheme, `'${address}' is none of ws://host:port, wss://host:port, unix:///path`);
  const host = name?.replace(/[[\]]/g, "");
  const pinned = { rejectUnauthorized: fingerprint === undefined, minVersion: "TLSv1.3" };
  const where = path ? { path } : { host, port: Number(port) };
  const servername = host && !net.isIP(host) ? host : undefined;
  const secure = scheme === "wss";
  const socket = secure ? tls.connect({ ...where, servername, ...pinned }) : net.connect(where);
  return new Promise((resolve, reject) => {
    const refuse = (why) => socket.destroy(new ClientError(why));
    socket.once("error", reject);
    socket.once(secure ? "secureConnect" : "connect", () => {
      if (secure && fingerprint !== undefined) {
        const found = createHash("sha256").update(socket.getPeerCertificate().raw).digest();
        const wanted = Buffer.from(fingerprint.replace(/^sha256:|:/gi, ""), "hex");
        const other = `sha256:${found.toString("hex")}`;
        if (wanted.length !== 32 || !timingSafeEqual(found, wanted)) {
          refuse(`the worker's certificate is not the pinned one: ${other}`);
        }
      } else if (scheme === "ws" && !isLoopback(socket.remoteAddress)) {
        refuse("ws:// is for this machine alone: use wss:// and the worker's fingerprint");
      }
      if (!socket.destroyed) resolve(socket.off("error", reject));
    });
  });
}

// The client's end of a connection; `take` is called with each text and binary message.
class WebSocket {
  #chunks = [];
  #size = 0;

  constructor(socket, take) {
    Object.assign(this, { socket, take });
    this.source = socket[Symbol.asyncIterator]();
    socket.setNoDelay?.(true);
  }

  async shakeHands(host) {
    const key = randomBytes(16).toString("base64");
    const upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13";
    const protocol = `Sec-WebSocket-Key: ${key}\r\nSec-WebSocket-Protocol: syft`;
    this.socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n${upgrade}\r\n${protocol}\r\n\r\n`);
    let head = "";
    while (!head.endsWith("\r\n\r\n")) {
      expect(head.length < 16384, "no worker answered at this address");
      head += (await this.#bytes(1)).toString("latin1");
    }
    const proof = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
    const [status, ...lines] = head.split("\r\n");
    const named = (name) => lines.find((line) => line.toLowerCase().startsWith(`${name}:`));
    const field = (name) => named(name)?.split(/:\s*/, 2)[1];
    const accepted = field("sec-websocket-accept") === proof.digest("base64");
    const fits = status.includes(" 101") && accepted && field("sec-websocket-protocol") === "syft";
    expect(fits, `no worker answered at this address: ${status}`);
  }

  // Read until the connection ends; the reason is thrown.
  async pump() {
    for (let [kind, parts, length] = [0, [], 0]; ; ) {
      const [first, second] = await this.#bytes(2);
      expect(!(first & 0x70) && second < 128, "the worker sent a frame that is masked or extended");
      let size = second;
      if (size === 126) size = (await this.#bytes(2)).readUInt16BE();
      else if (size === 127) size = Number((await this.#bytes(8)).readBigUInt64BE());
      expect(size + length <= MOST, "the worker sent a message that is too large");
      const data = await this.#bytes(size);
      const opcode = first & 15;
      expect(opcode !== CLOSE, `the worker has left: ${data.subarray(2)}`);
      if (opcode === PING) this.send(PONG, data);
      if (opcode > BINARY) continue;
      [kind, length] = [opcode || kind, length + size];
      parts.push(data);
      if (first & 0x80) {
        this.take(kind, Buffer.concat(parts));
        [kind, parts, length] = [0, [], 0];
      }
    }
  }

  async #bytes(size) {
    while (this.#size < size) {
      const { value, done } = await this.source.next();
      expect(!done, "the worker has closed the connection");
      this.heard = true;
      this.#chunks.push(value);
      this.#size += value.length;
    }
    const whole = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
    this.#chunks = [whole.subarray(size)];
    this.#size -= size;
    return whole.subarray(0, size);
  }

  // Send a message in one frame, masked with a random key.
  send(opcode, data) {
    const key = randomBytes(4);
    const size = Buffer.alloc(data.length < 126 ? 0 : data.length < 65536 ? 2 : 8);
    if (size.length === 2) size.writeUInt16BE(data.length);
    if (size.length === 8) size.writeBigUInt64BE(BigInt(data.length));
    const short = { 0: data.length, 2: 126, 8: 127 }[size.length];
    const body = Buffer.from(data.map((byte, index) => byte ^ key[index & 3]));
    this.socket.write(Buffer.concat([Buffer.of(0x80 | opcode, 0x80 | short), size, key, body]));
  }
}

// --------------------------------------------------------------------------------------- frames

// A frame without buffers.
export function frame(header, channel = 0) {
  const prefix = Buffer.from("syft\x01\0\0\0\0\0\0\0\0\0\0\0", "latin1");
  prefix.writeUInt16LE(channel, 6);
  prefix.writeUInt32LE(header.length, 12);
  return Buffer.concat([prefix, header]);
}

// The header of a frame, decoded, and its buffers, decompressed.
export function unframe(data) {
  const isFrame = data.length >= 16 && data.toString("latin1", 0, 6) === "syft\x01\0";
  expect(isFrame, "this is no frame of version 1");
  const [count, size] = [data.readUInt32LE(8), data.readUInt32LE(12)];
  const start = 16 + 24 * count;
  let [end, total] = [start + size, 0];
  expect(end <= data.length, "a frame ends too early");
  const header = unpacked(data.subarray(start, end));
  const buffers = [];
  for (let at = 16; at < start; at += 24) {
    const [stored, raw] = [Number(data.readBigUInt64LE(at)), Number(data.readBigUInt64LE(at + 8))];
    const begin = end + ((64 - (end % 64)) % 64);
    end = begin + stored;
    total += raw;
    expect(total <= MOST && end <= data.length, "a buffer is too large, or longer than its frame");
    const bytes = data.subarray(begin, end);
    buffers.push(data.readUInt32LE(at + 16) ? unlz4(bytes, raw) : bytes);
  }
  expect(end === data.length, "a frame is longer than what it holds");
  return [header, buffers];
}

// --------------------------------------------------------------------------------------- values

const [TENSOR, CONTAINERS] = [32, [2, 3, 5, 6, 18]]; // TUPLE, LIST, SET, FROZENSET, SIZE

const bits = (word) => new Float32Array(new Uint32Array([word << 16]).buffer)[0];
const half = (word) => {
  const [sign, exponent, fraction] = [word >> 15 ? -1 : 1, (word >> 10) & 31, word & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
};
const same = (number) => number;

// By DTypeCode: name, array, what a number of it stands for, numbers for each element.
const DTYPES = [
  ["float32", Float32Array, same, 1],
  ["float64", Float64Array, same, 1],
  ["float16", Uint16Array, half, 1],
  ["bfloat16", Uint16Array, bits, 1],
  ["bool", Uint8Array, Boolean, 1],
  ["uint8", Uint8Array, same, 1],
  ["int8", Int8Array, same, 1],
  ["int16", Int16Array, same, 1],
  ["int32", Int32Array, same, 1],
  ["int64", BigInt64Array, same, 1],
  ["uint16", Uint16Array, same, 1],
  ["uint32", Uint32Array, same, 1],
  ["uint64", BigUint64Array, same, 1],
  ["complex32", Uint16Array, half, 2],
  ["complex64", Float32Array, same, 2],
  ["complex128", Float64Array, same, 2],
];

// A tensor: its bytes as they lie in memory, and the stride of each dimension.
export class Tensor {
  constructor([code, shape, strides, buffer], buffers) {
    expect(DTYPES[code] && buffer !== null, `this client reads no tensors of DTypeCode ${code}`);
    const [dtype, kind, meaning, numbers] = DTYPES[code];
    strides ??= shape.map((_, dim) => shape.slice(dim + 1).reduce((one, two) => one * two, 1));
    const last = shape.reduce((sum, size, dim) => sum + (size - 1) * strides[dim], 0);
    const needed = shape.includes(0) ? 0 : (last + 1) * numbers * kind.BYTES_PER_ELEMENT;
    const fits = [...shape, ...strides].every((number) => number >= 0);
    expect(fits && buffers[buffer]?.length === needed, "a tensor does not fit its buffer");
    Object.assign(this, { dtype, shape, strides, kind, meaning, numbers, data: buffers[buffer] });
  }

  // The first elements in the order of memory: a typed array, or an array of what they stand for.
  elements(most = Infinity) {
    const size = Math.min(this.data.length, most * this.numbers * this.kind.BYTES_PER_ELEMENT);
    const found = new this.kind(new Uint8Array(this.data.subarray(0, size)).buffer);
    if (this.meaning === same && this.numbers === 1) return found;
    const numbers = Array.from(found, this.meaning);
    if (this.numbers === 1) return numbers;
    return Array.from({ length: numbers.length / 2 }, (_, at) => numbers.slice(2 * at, 2 * at + 2));
  }

  // The elements as nested arrays; complex numbers are pairs.
  toList() {
    const elements = this.elements();
    const nested = (at, dim) => {
      const [length, stride] = [this.shape[dim], this.strides[dim]];
      if (dim === this.shape.length) return elements[at];
      return Array.from({ length }, (_, index) => nested(at + index * stride, dim + 1));
    };
    return nested(0, 0);
  }

  toString() {
    const some = this.elements(6);
    const shown = Array.from(some, format);
    const more = this.data.length > some.length * this.numbers * this.kind.BYTES_PER_ELEMENT;
    return `${this.dtype} [${this.shape.join(", ")}]: ${shown.join(", ")}${more ? ", …" : ""}`;
  }
}

function format(number) {
  if (Array.isArray(number)) return `${format(number[0])}+${format(number[1])}j`;
  return typeof number === "bigint" ? `${number}` : `${Number(Number(number).toPrecision(6))}`;
}

// The value of an operand; what this client does not know stays as it came.
function valueOf(operand, buffers) {
  if (!Array.isArray(operand) || !operand.length) return operand;
  const [code, ...fields] = operand;
  if (code === TENSOR) return new Tensor(fields, buffers);
  return CONTAINERS.includes(code) ? fields.map((field) => valueOf(field, buffers)) : operand;
}

// ----------------------------------------------------------------------------------- the client

const [FETCH, SEARCH, RUN, PLAN_CALL] = [3, 7, 18, 43];
const [DONE, VALUE, FAILURE, PARKED, FORGOTTEN, STALE] = [32, 33, 34, 35, 37, 38];
const LINE = 3; // the channel of what is said of the line
const [RECEIVED, BUSY, BYE] = [1, 11, 16];

// A line to a worker, and the requests that this client can make over it.
export class Client {
  #last = 0;
  #received = 0;
  #told = 0;
  #waiting = new Map(); // by the number of the request; that of the greeting is 0

  // Rejects with Refused, ClientError or an error of the socket.
  static async connect(address, { token, fingerprint } = {}) {
    const client = new Client();
    const socket = await dial(address, fingerprint);
    socket.on("error", () => {}); // the pump reports it
    const late = new ClientError("the worker did not answer in time");
    const timer = setTimeout(() => socket.destroy(late), 10000);
    try {
      client.websocket = new WebSocket(socket, (kind, data) => client.#take(kind, data));
      const host = address.startsWith("unix:") ? "localhost" : address.split("/")[2];
      await client.websocket.shakeHands(host);
      const welcome = new Promise((...callbacks) => client.#waiting.set(0, callbacks));
      client.websocket.pump().catch((error) => client.#end(error));
      const versions = { protocol: 3, ops: 0, software: "minimal_client.mjs" };
      const hello = { kind: "hello", name: "minimal client", ...versions, token };
      client.websocket.send(TEXT, Buffer.from(JSON.stringify(hello)));
      client.welcome = { heartbeat: 2, user: null, plans: false, ...(await welcome) };
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      clearTimeout(timer);
    }
    client.#beat();
    return client;
  }

  // Ask a worker that is silent for a sign of life, and give it up after three heartbeats.
  #beat() {
    const { websocket } = this;
    let silent = 0;
    const beat = () => {
      silent = websocket.heard ? 0 : silent + 1;
      websocket.heard = false;
      if (silent === 3) websocket.socket.destroy(new ClientError("the worker has fallen silent"));
      else if (silent) websocket.send(PING, Buffer.alloc(0));
    };
    const timer = setInterval(beat, this.welcome.heartbeat * 1000);
    websocket.socket.once("close", () => clearInterval(timer));
  }

  // Say goodbye: the worker frees what this client made there.
  close() {
    this.tell(BYE, "this client has finished");
    this.websocket.send(CLOSE, Buffer.of(3, 232));
    this.websocket.socket.end();
  }

  // Say something about the line.
  tell(code, ...fields) {
    this.websocket.send(BINARY, frame(packed([code, ...fields]), LINE));
  }

  // Make a request; resolves with its value, and rejects with Failure if it failed.
  ask(code, ...fields) {
    if (this.ended) return Promise.reject(this.ended);
    const seq = (this.#last += 1);
    this.websocket.send(BINARY, frame(packed([code, seq, ...fields])));
    return new Promise((...callbacks) => this.#waiting.set(seq, callbacks));
  }

  #end(error) {
    const ofSocket = error.syscall || error.code?.startsWith("ERR_SSL");
    const known = error instanceof ClientError || ofSocket;
    const unreadable = `the worker sent what this client cannot read: ${error.message}`;
    this.ended ??= known ? error : new ClientError(unreadable);
    this.websocket.socket.destroy();
    for (const [, reject] of this.#waiting.values()) reject(this.ended);
    this.#waiting.clear();
  }

  #take(kind, data) {
    if (this.#waiting.has(0)) return this.#greeted(kind === TEXT ? JSON.parse(`${data}`) : {});
    expect(kind === BINARY, "a text came after the welcome");
    const [header, buffers] = unframe(data);
    const ofLine = data.readUInt16LE(6) === LINE;
    if (ofLine && [RECEIVED, BUSY].includes(header[0])) return undefined; // they are not counted
    this.#received += 1;
    if (ofLine || buffers.length || this.#received - this.#told >= 64) {
      this.#told = this.#received;
      this.tell(RECEIVED, this.#received);
    }
    return ofLine ? undefined : this.#answered(header, buffers);
  }

  #greeted(answer) {
    const [resolve] = this.#waiting.get(0);
    if (answer.kind === "refused") throw new Refused(answer.code, answer.reason);
    expect(answer.kind === "welcome", "the worker did not answer with a welcome");
    this.#waiting.delete(0);
    resolve(answer);
  }

  #answered([code, seq, value], buffers) {
    if ([PARKED, FORGOTTEN, STALE].includes(code)) return;
    const [first] = this.#waiting.keys(); // what cannot be read is answered with the number -1
    const number = seq === -1 ? first : seq;
    const known = this.#waiting.has(number) && [DONE, VALUE, FAILURE].includes(code);
    expect(known, `a reply to a request was expected, and ${code}, ${seq} came`);
    const [resolve, reject] = this.#waiting.get(number);
    if (code === FAILURE) reject(new Failure(value[1], valueOf([3, ...value[2]], buffers)));
    else resolve(code === VALUE ? valueOf(value, buffers) : null);
    this.#waiting.delete(number);
  }

  // The objects that carry each of these tags; of a plan, `plan` says what a call takes and gives.
  async search(...words) {
    const found = await this.ask(SEARCH, words);
    return found.map(([id, tags, description, shape, plan]) => {
      return { id, tags, description, shape, plan };
    });
  }

  // The value of an object: a Tensor, for one.
  read(id, keep = true) {
    return this.ask(FETCH, id, 0, keep);
  }

  // Call a plan with objects of the worker; resolves with its results, and keeps none there.
  async call(plan, ...ids) {
    expect(plan.plan, `object ${plan.id} is no plan`);
    const results = plan.plan[5].length;
    const first = randomBytes(8).readBigUInt64BE() >> 2n; // so that no other object has these ids
    const define = [PLAN_CALL, plan.id, Buffer.alloc(ids.length)];
    const values = await this.ask(RUN, 0, ids, first, results << 3, [], define);
    const stored = Array.from({ length: results }, (_, index) => [0, first + BigInt(index)]);
    const result = (value) => (Array.isArray(value) ? this.read(value[1], false) : value);
    return Promise.all((values ?? stored).map(result));
  }
}

// --------------------------------------------------------------------------------- command line

// A text of others without characters that would steer the terminal.
const plain = (text) => text.replace(/\p{C}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

async function report(client, words, tag) {
  const found = await client.search(...words);
  const { worker, software = "unknown software" } = client.welcome;
  console.log(plain(`${found.length} at ${worker} (${software})`));
  for (const { id, tags, description, plan } of found) {
    console.log(plain(`${id} ${tags.join(" ")} ${description ?? ""}`.trimEnd()));
    const shown = plan
      ? `plan ${plan[0]}(${plan[1].map(([name]) => name).join(", ")})`
      : await client.read(id).catch((error) => {
          if (error instanceof Failure) return error.message;
          throw error;
        });
    console.log(`    ${plain(`${shown}`)}`);
  }
  if (tag === undefined) return;
  const [plan] = await client.search(tag);
  expect(plan, `nothing has the tag ${tag}`);
  const inputs = found.filter((item) => !item.plan).map(({ id }) => id);
  const results = await client.call(plan, ...inputs);
  for (const value of results) console.log(plain(`${tag} gives ${value}`));
}

async function main() {
  const names = ["token-file", "fingerprint", "call"];
  const options = Object.fromEntries(names.map((name) => [name, { type: "string" }]));
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [address, ...words] = positionals;
  expect(address, "an address is needed: ws://host:port, wss://host:port or unix:///path");
  const token = values["token-file"] && readFileSync(values["token-file"], "utf8").trim();
  const client = await Client.connect(address, { token, fingerprint: values.fingerprint });
  try {
    await report(client, words, values.call);
  } finally {
    client.close();
  }
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  main().catch((error) => {
    console.error(plain(`${error.name}: ${error.message}`));
    process.exitCode = 1;
  });
}
