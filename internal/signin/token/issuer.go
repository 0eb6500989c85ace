// Package token issues and verifies the tokens that the service accepts, and
// publishes the keys to verify them.
//
// A token identifies the caller. It does not contain the permissions of the caller.
package token

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	// DefaultLife is the life of a token whose claims set none.
	DefaultLife = time.Hour

	// MaxLife is the longest life of a token. The deletion of an identity is
	// remembered for longer, so that the tokens of the identity stay void.
	MaxLife = authz.RevocationMemory - time.Hour

	cachedTokens = 10_000
)

// Config configures an Issuer.
type Config struct {
	Issuer   string        // the iss claim of every token, and the base address of the keys
	Key      secret.Key    // seals the signing keys
	Rotation time.Duration // age at which the newest key is replaced; 0 is never

	// Audiences are the audiences of this installation. Tokens for any other audience
	// are signed with RS256, because other services verify them. If Audiences is nil,
	// every audience belongs to this installation.
	Audiences []string
	Algorithm string // algorithm of tokens for Audiences: RS256, or "" for ES256

	Lookups metric.Cache     // counts lookups in the cache of verified tokens
	Now     func() time.Time // nil is time.Now
}

// An Issuer issues and verifies tokens. Replicas over the same store share its keys.
// It is safe for concurrent use.
type Issuer struct {
	store    *tokendb.Store
	issuer   string
	master   secret.Key
	rotation time.Duration
	now      func() time.Time

	audiences []string
	algorithm string

	keys     atomic.Pointer[keys]
	verified *lru.Cache[digest, authz.Caller]
	lookups  metric.Cache

	pairing   sync.Mutex // held while an RSA key is created; guards pairTried
	pairTried time.Time  // when ensurePaired last tried to create an RSA key

	stale       atomic.Bool // whether the keys may have changed since they were read
	refreshMu   sync.Mutex  // guards refreshedAt
	refreshedAt time.Time   // when the keys were last read
}

// Claims are the contents of a token. Caps, Scopes and Registry narrow the token if they
// are not nil.
type Claims struct {
	Subject       resource.UID
	Audience      []string
	Act           *resource.Upstream // credential with which the identity was assumed
	Email         string
	EmailVerified bool
	Session       string           // session of the token, or ""
	Voucher       resource.Voucher // identity provider that vouched for the person, or ""
	Caps          *resource.Capabilities
	Scopes        []resource.UID
	Registry      []resource.RegistryScope // narrows a token of the registry
	Life          time.Duration            // 0 is DefaultLife
	Until         time.Time                // latest expiry, whatever Life is; zero is no limit
	Issued        time.Time                // zero is the time of Mint; see MintAdmitted
}

// New returns an issuer with the keys of db. It creates the first key if there is
// none. It returns an error if a key was sealed with another encryption key. The
// paired RSA key takes longer to create, so it is created when it is first needed,
// or by Run.
func New(ctx context.Context, db *store.DB, cfg Config) (*Issuer, error) {
	if cfg.Issuer == "" {
		return nil, errors.New("an issuer needs an address")
	}
	i := &Issuer{
		store: tokendb.New(db), issuer: cfg.Issuer, master: cfg.Key, rotation: cfg.Rotation, lookups: cfg.Lookups,
		now:       cfg.Now,
		audiences: cfg.Audiences, algorithm: cfg.Algorithm,
	}
	i.verified, _ = lru.New[digest, authz.Caller](cachedTokens) // lru.New fails only for a size of 0
	if i.now == nil {
		i.now = time.Now
	}
	if err := i.load(ctx); err != nil {
		return nil, fmt.Errorf("load the signing keys: %w", err)
	}
	return i, nil
}

// A payload is the JSON form of the claims.
type payload struct {
	Issuer        string             `json:"iss"`
	Subject       string             `json:"sub"`
	Audience      audiences          `json:"aud"`
	IssuedAt      int64              `json:"iat"`
	NotBefore     int64              `json:"nbf"`
	Expiry        int64              `json:"exp"`
	ID            string             `json:"jti"`
	Email         string             `json:"email,omitempty"`
	EmailVerified bool               `json:"email_verified,omitempty"`
	Act           *resource.Upstream `json:"act,omitempty"`
	Session       string             `json:"sid,omitempty"`
	Voucher       resource.Voucher   `json:"idp,omitempty"`
	Caps          *capset            `json:"cap,omitempty"`
	Scopes        *[]resource.UID    `json:"scopes,omitempty"` // nil: not narrowed; an empty list: narrowed to no group
	Webhook       *webhook           `json:"webhook,omitempty"`

	// nil: not narrowed; an empty list: narrowed to nothing in the registry
	Registry *[]resource.RegistryScope `json:"access,omitempty"`
}

// audiences are encoded as a list, or as a string if there is only one.
type audiences []string

func (a audiences) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// Mint returns a new token with the claims c. It returns fault.Unauthenticated if
// the token would already be expired.
func (i *Issuer) Mint(ctx context.Context, c Claims) (string, error) {
	life := cmp.Or(c.Life, DefaultLife)
	if _, err := resource.ParseUID("sub", string(c.Subject)); err != nil {
		return "", err
	}
	if len(c.Audience) == 0 || life < time.Second || life > MaxLife {
		return "", fmt.Errorf("a token needs an audience and a life of a second to %v, not %q and %v",
			MaxLife, c.Audience, life)
	}
	current := i.now()
	issued := cmp.Or(c.Issued, current)
	ends := issued.Add(life)
	if !c.Until.IsZero() && c.Until.Before(ends) {
		ends = c.Until
	}
	if ends.Unix() <= current.Unix() {
		return "", refused("the token has expired")
	}
	p := payload{
		Issuer: i.issuer, Subject: string(c.Subject), Audience: c.Audience,
		IssuedAt: issued.Unix(), NotBefore: issued.Unix(), Expiry: ends.Unix(), ID: rand.Text(),
		Email: c.Email, EmailVerified: c.EmailVerified, Act: c.Act,
		Session: c.Session, Voucher: c.Voucher, Caps: (*capset)(c.Caps),
	}
	if c.Scopes != nil {
		p.Scopes = &c.Scopes
	}
	if c.Registry != nil {
		p.Registry = &c.Registry
	}
	s, err := i.signerFor(ctx, i.algorithmFor(c.Audience), current)
	if err != nil {
		return "", err
	}
	return s.encode(p)
}

// MintAdmitted is Mint for a token that is derived from a credential. c.Issued must be a time before the credential was
// verified. A revocation after that time makes the new token void, even if the verification has waited for another
// server, or this process was paused. MintAdmitted returns fault.Unauthenticated if the new token is already void.
func (i *Issuer) MintAdmitted(ctx context.Context, c Claims, checker *authz.Checker) (string, error) {
	raw, err := i.Mint(ctx, c)
	if err == nil {
		_, err = checker.Admit(ctx, authz.Caller{
			Identity: c.Subject, Act: c.Act, Session: c.Session, Voucher: c.Voucher,
			Issued: c.Issued.Truncate(time.Second),
		})
	}
	if err != nil {
		return "", err
	}
	return raw, nil
}

// signerFor returns the key that signs tokens with an algorithm at the time now.
func (i *Issuer) signerFor(ctx context.Context, algorithm string, now time.Time) (signer, error) {
	k, err := i.current(ctx)
	if err != nil {
		return signer{}, err
	}
	if algorithm == RS256 {
		k = i.ensurePaired(ctx)
	}
	return k.signerFor(algorithm, now), nil
}

// algorithmFor returns the signature algorithm of tokens for the audiences.
func (i *Issuer) algorithmFor(audience []string) string {
	foreign := func(a string) bool { return !slices.Contains(i.audiences, a) }
	if i.audiences != nil && slices.ContainsFunc(audience, foreign) {
		return RS256
	}
	return i.algorithm
}

// WebhookAudience is the audience of the tokens in webhook deliveries.
const WebhookAudience = "customer"

// webhookLife is the life of webhook tokens. It allows for the delivery time and for
// differing clocks.
const webhookLife = 10 * time.Minute

// A webhook is the claim of a token about its webhook delivery.
type webhook struct {
	Digest string `json:"digest"`
}

// MintWebhook returns a token that proves the origin of a delivery to a subscription in
// group. digest is the digest of the delivered data. The service itself does not
// accept such a token.
func (i *Issuer) MintWebhook(ctx context.Context, group resource.UID, digest string) (string, error) {
	issued := i.now()
	s, err := i.signerFor(ctx, RS256, issued)
	if err != nil {
		return "", err
	}
	return s.encode(payload{
		Issuer: i.issuer, Subject: "webhook:" + string(group), Audience: audiences{WebhookAudience},
		IssuedAt: issued.Unix(), NotBefore: issued.Unix(), Expiry: issued.Add(webhookLife).Unix(),
		ID: rand.Text(), Webhook: &webhook{digest},
	})
}

// upstreamLife is the life of upstream tokens. The other server must exchange the
// token within this time.
const upstreamLife = 5 * time.Minute

// MintUpstream returns a token with which this server authenticates to another server
// as an upstream of a group. address is the address of the other server and the
// audience of the token. The service itself does not accept such a token.
func (i *Issuer) MintUpstream(ctx context.Context, upstream resource.UID, address string) (string, error) {
	return i.mintForServer(ctx, "upstream:"+string(upstream), address)
}

// MintReplication is MintUpstream for a replication, whose target is the other server.
func (i *Issuer) MintReplication(ctx context.Context, replication resource.UID, address string) (string, error) {
	return i.mintForServer(ctx, "replication:"+string(replication), address)
}

func (i *Issuer) mintForServer(ctx context.Context, subject, address string) (string, error) {
	issued := i.now()
	s, err := i.signerFor(ctx, RS256, issued)
	if err != nil {
		return "", err
	}
	return s.encode(payload{
		Issuer: i.issuer, Subject: subject, Audience: audiences{address},
		IssuedAt: issued.Unix(), NotBefore: issued.Unix(), Expiry: issued.Add(upstreamLife).Unix(), ID: rand.Text(),
	})
}

// Address returns the iss claim of every token.
func (i *Issuer) Address() string { return i.issuer }

// encode returns a token with the claims p.
func (s signer) encode(p any) (string, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode a token: %w", err)
	}
	raw, err := s.sign(body)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return raw, nil
}
