// An OpenID provider with one public client and one person, for the browser
// tests: node provider.mjs PORT CLIENT-ID REDIRECT-URI
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Where the packages are is not where this file is.
const require = createRequire(`${process.env.NODE_PATH}/`);
const { default: Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));

const [port, client_id, redirect_uri] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id, redirect_uris: [redirect_uri], token_endpoint_auth_method: "none" }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: "Ben Example", email: `${id}@example.com`, email_verified: true, groups: ["ops"] }),
  }),
  pkce: { required: () => true },
});
provider.listen(Number(port), "127.0.0.1", () => console.log(`serving ${issuer}`));
