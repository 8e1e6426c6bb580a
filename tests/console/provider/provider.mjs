// An OpenID Connect provider for tests: people sign in by their names, with any password, and have the groups of a file.
import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const [port, redirect, secret, file] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const groupsOf = () => JSON.parse(readFileSync(file, "utf8"));
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "console",
      client_secret: secret,
      redirect_uris: [redirect],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "client_secret_basic",
    },
  ],
  claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
  scopes: ["openid", "profile", "groups"],
  findAccount: (_, id) =>
    id in groupsOf()
      ? { accountId: id, claims: () => ({ sub: id, preferred_username: id, groups: groupsOf()[id] }) }
      : undefined,
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  cookies: { keys: ["of-the-test"] },
  features: { devInteractions: { enabled: true } },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
