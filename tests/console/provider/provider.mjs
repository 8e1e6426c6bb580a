// An OpenID Connect provider for tests: anybody signs in by their name, with any password, and has the groups of it.
import { Provider } from "oidc-provider";

const [port, redirect, secret, groups] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const groupsOf = JSON.parse(groups);
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "console",
      client_secret: secret,
      redirect_uris: [redirect],
      grant_types: ["authorization_code"],
      response_types: ["code"],
      token_endpoint_auth_method: "client_secret_basic",
    },
  ],
  claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
  scopes: ["openid", "profile", "groups"],
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, groups: groupsOf[id] ?? [] }),
  }),
  pkce: { required: () => true },
  cookies: { keys: ["of-the-test"] },
  features: { devInteractions: { enabled: true } },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
