package mirror

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// sealedCredentials is the content that is encrypted for the credentials of an upstream. It contains the addresses to
// which the credentials may be sent, so that they cannot be used for others.
type sealedCredentials struct {
	Address     string `json:"address"`
	Realm       string `json:"realm"`
	Credentials string `json:"credentials"`
}

// SealCredentials encrypts the credentials of u if they are in plain text.
func SealCredentials(key secret.Key, u *registry.Upstream) error {
	if u.Credentials.Plain == "" {
		return nil
	}
	plain, err := json.Marshal(sealedCredentials{u.Address, u.Realm, u.Credentials.Plain})
	if err != nil {
		return err
	}
	u.Credentials = resource.Secret{Sealed: key.Seal(secret.ForUpstreams, plain)}
	return nil
}

// OpenCredentials decrypts the credentials of u. It returns an error if they were sealed for another address.
func OpenCredentials(key secret.Key, u registry.Upstream) (user, password string, _ error) {
	plain, err := key.Open(secret.ForUpstreams, u.Credentials.Sealed)
	if err != nil {
		return "", "", err
	}
	var c sealedCredentials
	if err := json.Unmarshal(plain, &c); err != nil {
		return "", "", fault.New(fault.Internal, "the credentials of an upstream cannot be read")
	}
	if c.Address != u.Address || c.Realm != u.Realm {
		return "", "", fault.New(fault.Internal, "the credentials of an upstream are for another address")
	}
	user, password, _ = strings.Cut(c.Credentials, ":")
	return user, password, nil
}

// remote returns an upstream as a Registry for the client: its addresses and how to sign in.
func (f *Fetcher) remote(u registry.Upstream) upstream.Registry {
	to := upstream.Registry{
		Key: string(u.UID) + " " + u.UpdateTime.String(), Address: u.Address, Realm: u.Realm,
	}
	switch {
	case u.Identity != "":
		to.SignIn = func(ctx context.Context) (user, password string, err error) {
			password, err = f.config.Issuer.MintUpstream(ctx, u.UID, u.Address)
			return u.Identity, password, err
		}
	case !u.Credentials.Empty():
		to.SignIn = func(context.Context) (user, password string, err error) {
			return OpenCredentials(f.config.Key, u)
		}
	}
	return to
}
