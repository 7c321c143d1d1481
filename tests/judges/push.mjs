// Reads what a push service was sent, as the browser and the service would: http_ece decrypts, jose verifies.
import { createECDH } from "node:crypto";
import { createRequire } from "node:module";

const [modules, given] = process.argv.slice(2);
const require = createRequire(modules);
const ece = require("http_ece");
const { importJWK, jwtVerify } = await import(require.resolve("jose"));
const { body, privateKey, auth, authorization, audience } = JSON.parse(given);

const receiver = createECDH("prime256v1");
receiver.setPrivateKey(Buffer.from(privateKey, "base64url"));
const text = ece.decrypt(Buffer.from(body, "base64url"), { version: "aes128gcm", privateKey: receiver, authSecret: auth });

const [, token, key] = /^vapid t=([\w.-]+), k=([\w-]+)$/.exec(authorization);
const point = Buffer.from(key, "base64url");
const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((each) => each.toString("base64url"));
const known = await importJWK({ kty: "EC", crv: "P-256", x, y }, "ES256");
const { payload } = await jwtVerify(token, known, { audience, maxTokenAge: undefined });
console.log(JSON.stringify({ text: text.toString(), key, claims: payload }));
