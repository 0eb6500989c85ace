// Runs oidc-provider on a free port of this machine, and prints its address. A
// client with a secret gets tokens for itself, as JSON Web Tokens.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'job', client_secret: 'a-secret-of-a-test', grant_types: ['client_credentials'],
      redirect_uris: [], response_types: [],
    }],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, audience) => ({ audience, scope: '', accessTokenFormat: 'jwt', accessTokenTTL: 600 }),
      },
    },
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
