package factor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
)

// newWebAuthn returns the WebAuthn relying party. It returns nil if the host of origin
// is an IP address, because browsers bind passkeys to domain names.
func newWebAuthn(origin *url.URL) (*webauthn.WebAuthn, error) {
	if net.ParseIP(origin.Hostname()) != nil {
		return nil, nil
	}
	return webauthn.New(&webauthn.Config{
		RPID: origin.Hostname(), RPDisplayName: "Holdfast",
		RPOrigins: []string{origin.Scheme + "://" + origin.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired,
		},
	})
}

// A passkeyUser is an account as a webauthn.User. org is the name of its
// organization, which is shown when a passkey is created.
type passkeyUser struct {
	resource.Account
	org string
}

// WebAuthnID implements webauthn.User.
func (u passkeyUser) WebAuthnID() []byte { return signindb.Digest(string(u.UID)) }

// WebAuthnName implements webauthn.User.
func (u passkeyUser) WebAuthnName() string {
	if u.org == "" {
		return u.Email
	}
	return accountLabel(u.Account, u.org)
}

// WebAuthnDisplayName implements webauthn.User.
func (u passkeyUser) WebAuthnDisplayName() string {
	return cmp.Or(u.Account.Name, u.Email)
}

// WebAuthnCredentials implements webauthn.User.
func (u passkeyUser) WebAuthnCredentials() (credentials []webauthn.Credential) {
	for _, p := range u.Passkeys {
		var c webauthn.Credential
		if json.Unmarshal(p.Detail, &c) == nil {
			credentials = append(credentials, c)
		}
	}
	return credentials
}

// Options are the options that a page passes to the browser's WebAuthn API.
type Options map[string]any

// BeginLogin begins an authentication ceremony. It accepts a passkey of a or, if a is
// nil, any passkey. It returns the options for the browser, and the state to pass to
// VerifyPasskey.
func (c *Checker) BeginLogin(a *resource.Account) (_ Options, state []byte, err error) {
	var options *protocol.CredentialAssertion
	var ceremony *webauthn.SessionData
	if a != nil {
		preferred := webauthn.WithUserVerification(protocol.VerificationPreferred)
		options, ceremony, err = c.webauthn.BeginLogin(passkeyUser{Account: *a}, preferred)
	} else {
		required := webauthn.WithUserVerification(protocol.VerificationRequired)
		options, ceremony, err = c.webauthn.BeginDiscoverableLogin(required)
	}
	if err == nil {
		state, err = json.Marshal(ceremony)
	}
	if err != nil {
		return nil, nil, err
	}
	return Options{"publicKey": options.Response}, state, nil
}

// WrongPasskey is the message for a passkey that is not accepted.
const WrongPasskey = "This passkey does not sign in here."

// VerifyPasskey returns the account whose passkey has signed the challenge of a ceremony. If the passkey is a second
// factor, proved is not nil, and reports whether the password of an account was right in the same sign-in.
// VerifyPasskey returns fault.Unauthenticated if the credential is not valid.
func (c *Checker) VerifyPasskey(
	ctx context.Context, state, credential []byte, proved func(resource.Account) bool,
) (a resource.Account, _ error) {
	wrong := func(err error) error {
		return &fault.Error{Code: fault.Unauthenticated, Message: "Unauthenticated: " + WrongPasskey, Cause: err}
	}
	var ceremony webauthn.SessionData
	if len(state) == 0 || json.Unmarshal(state, &ceremony) != nil {
		return a, wrong(nil)
	}
	first, err := c.useChallenge(ctx, ceremony)
	if err != nil {
		return a, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(credential)
	if err != nil || !first {
		return a, wrong(err)
	}
	if a, err = c.accounts.AccountWithPasskey(ctx, parsed.RawID); errors.Is(err, fault.NotFound) {
		return a, wrong(err)
	} else if err != nil {
		return a, err
	}
	var used *webauthn.Credential
	if proved != nil {
		if !proved(a) {
			return a, wrong(nil)
		}
		used, err = c.webauthn.ValidateLogin(passkeyUser{Account: a}, ceremony, parsed)
	} else {
		find := func(_, handle []byte) (webauthn.User, error) {
			if !bytes.Equal(handle, passkeyUser{Account: a}.WebAuthnID()) {
				return nil, errors.New("the passkey belongs to another account")
			}
			return passkeyUser{Account: a}, nil
		}
		used, err = c.webauthn.ValidateDiscoverableLogin(find, ceremony, parsed)
	}
	if err != nil || used.Authenticator.CloneWarning {
		return a, wrong(err)
	}
	detail, err := json.Marshal(used)
	if err != nil {
		return a, err
	}
	return a, c.accounts.UsePasskey(ctx, used.ID, detail)
}

// useChallenge marks the challenge of a ceremony as used, and reports whether this is
// its first use.
func (c *Checker) useChallenge(ctx context.Context, ceremony webauthn.SessionData) (bool, error) {
	return c.accounts.UseOnce(ctx, signindb.Digest("passkey "+ceremony.Challenge), c.now().Add(ceremonyLife))
}

// A registration is a ceremony that registers a new passkey. It expires, because the
// person has typed their password before it and must not be able to add passkeys
// forever.
type registration struct {
	Expires  int64                // in seconds since 1970
	Ceremony webauthn.SessionData `json:"Question"`
}

// BeginRegistration begins a ceremony that registers a new passkey of a. org is the name of its organization. It
// returns the options for the browser and the state to pass to UseRegistration.
func (c *Checker) BeginRegistration(a resource.Account, org string) (_ Options, state []byte, _ error) {
	var exclude []protocol.CredentialDescriptor
	for _, c := range (passkeyUser{Account: a}).WebAuthnCredentials() {
		exclude = append(exclude, c.Descriptor())
	}
	options, ceremony, err := c.webauthn.BeginRegistration(passkeyUser{a, org}, webauthn.WithExclusions(exclude))
	if err == nil {
		state, err = json.Marshal(registration{c.now().Add(ceremonyLife).Unix(), *ceremony})
	}
	if err != nil {
		return nil, nil, err
	}
	return Options{"publicKey": options.Response}, state, nil
}

// A Registration is a registration ceremony that AddPasskey can finish.
type Registration struct{ ceremony webauthn.SessionData }

// UseRegistration returns the ceremony with the state from BeginRegistration. It
// returns fault.FailedPrecondition if the ceremony has expired or was used.
func (c *Checker) UseRegistration(ctx context.Context, state []byte) (reg Registration, _ error) {
	expired := fault.New(fault.FailedPrecondition,
		"Precondition failed: the request to the passkey has expired or was used; try again")
	var begun registration
	if json.Unmarshal(state, &begun) != nil || c.now().Unix() >= begun.Expires {
		return reg, expired
	}
	first, err := c.useChallenge(ctx, begun.Ceremony)
	if err == nil && !first {
		err = expired
	}
	return Registration{begun.Ceremony}, err
}

// AddPasskey finishes a registration ceremony with the credential from the browser,
// and adds the passkey to a. It returns fault.InvalidArgument if the credential is
// not valid.
func (c *Checker) AddPasskey(
	ctx context.Context, a resource.Account, reg Registration, credential []byte, name string,
) error {
	invalid := func(why string, err error) error {
		return &fault.Error{Code: fault.InvalidArgument, Message: "Invalid argument: the passkey " + why, Cause: err}
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(credential)
	if err != nil {
		return invalid("cannot be read", err)
	}
	made, err := c.webauthn.CreateCredential(passkeyUser{Account: a}, reg.ceremony, parsed)
	if err != nil {
		return invalid("cannot be verified", err)
	}
	detail, err := json.Marshal(made)
	if err != nil {
		return err
	}
	name = cmp.Or(input.Short(name), "Passkey of "+c.now().UTC().Format(time.DateOnly))
	return c.accounts.AddPasskey(ctx, a.UID, resource.Passkey{ID: made.ID, Name: name, Detail: detail})
}
