// A real OpenID Connect provider for the tests, on one loopback port. Whom it knows, and their groups, is read from the
// file ACCOUNTS at each log-in; any password will do.
import { readFileSync } from 'node:fs';

import { Provider } from 'oidc-provider';

const { ISSUER, PORT, REDIRECT, ACCOUNTS, SECRET, LEAN } = process.env;

const provider = new Provider(ISSUER, {
  clients: [{ client_id: 'healthboard', client_secret: SECRET, redirect_uris: [REDIRECT] }],
  claims: { openid: ['sub', 'groups'], profile: ['preferred_username', 'given_name', 'family_name'] },
  conformIdTokenClaims: Boolean(LEAN), // lean: what is about the person is told by the user info alone
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true } },
  cookies: { keys: [SECRET] },
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...JSON.parse(readFileSync(ACCOUNTS))[id] }),
  }),
  async loadExistingGrant(ctx) { // nobody is asked for consent
    const grant = new ctx.oidc.provider.Grant({
      clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId,
    });
    grant.addOIDCScope('openid profile');
    grant.addOIDCClaims(['groups']);
    await grant.save();
    return grant;
  },
});
provider.listen(Number(PORT), '127.0.0.1', () => console.log('listening'));
