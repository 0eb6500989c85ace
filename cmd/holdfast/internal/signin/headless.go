package signin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"time"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
)

// headlessEvery is the interval at which the issuer is asked whether the person has
// signed in.
const headlessEvery = time.Second

// signInHeadless signs in a person with a browser on any machine. The address that the
// person opens contains a public key. The issuer encrypts the tokens for this key, so
// that only this command can read them.
func (a *Agent) signInHeadless(ctx context.Context, issuer string, p Person) (tokens, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return tokens{}, err
	}
	code := base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())
	q := p.query()
	q.Set("headless_code", code)
	a.Note("open in a browser anywhere: %s/oauth?%s", issuer, q.Encode())
	a.Note("continue there only if it shows the code %s", checkCode(code))
	ctx, cancel := context.WithTimeoutCause(ctx, signInTimeout, errNobody)
	defer cancel()
	for {
		if err := pause(ctx, headlessEvery); err != nil {
			return tokens{}, err
		}
		sealed, err := a.headlessSession(ctx, issuer, code)
		switch p, ok := errors.AsType[*problem.Problem](err); {
		case err == nil:
			return openTokens(key, sealed)
		case ctx.Err() != nil:
			return tokens{}, context.Cause(ctx)
		// The person has not signed in yet, or the network is interrupted.
		case !ok || (p.Code != problem.ExitNotFound && p.Code != problem.ExitUnreachable):
			return tokens{}, err
		}
	}
}

func (a *Agent) headlessSession(ctx context.Context, issuer, code string) (*authpb.HeadlessSession, error) {
	c, err := a.connect(settings.Value{Text: issuer, Origin: "issuer"}, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return Call(ctx, authpb.NewAuthClient(c).GetHeadlessSession, &authpb.GetHeadlessSessionRequest{Code: code})
}

// checkCode returns a short code that the page shows as well. If both codes are equal,
// the page belongs to this command and not to a command of another person.
func checkCode(code string) string {
	d := sha256.Sum256([]byte(code))
	text := base32.StdEncoding.EncodeToString(d[:5])
	return text[:4] + "-" + text[4:]
}

var errSealed = errors.New("the issuer's answer cannot be decrypted: sign in again")

// openTokens decrypts tokens that were encrypted for a key.
func openTokens(key *ecdh.PrivateKey, sealed *authpb.HeadlessSession) (t tokens, err error) {
	public, err := base64.RawURLEncoding.DecodeString(string(sealed.GetEcdhPublicKey()))
	if err != nil {
		return t, errSealed
	}
	theirs, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return t, errSealed
	}
	shared, err := key.ECDH(theirs)
	if err != nil {
		return t, errSealed
	}
	if t.Access, err = unseal(shared, sealed.GetEncryptedIdtoken()); err != nil || !holdfast.IsToken(t.Access) {
		return tokens{}, errSealed
	}
	if len(sealed.GetEncryptedRefreshToken()) == 0 {
		return t, nil
	}
	if t.Refresh, err = unseal(shared, sealed.GetEncryptedRefreshToken()); err != nil || !holdfast.IsToken(t.Refresh) {
		return tokens{}, errSealed
	}
	return t, nil
}

// unseal decrypts AES-256-GCM. The text follows the nonce.
func unseal(key, sealed []byte) (string, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return "", err
	}
	if len(sealed) < gcm.NonceSize() {
		return "", errSealed
	}
	text, err := gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], nil)
	return string(text), err
}
