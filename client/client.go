// Package client calls a Holdfast server from Go.
//
// Dial makes a connection whose calls carry a token. The connection renews the token by
// itself. The generated clients in gen/ accept it:
//
//	c, err := client.Dial(client.Config{
//		Address:    "https://holdfast.example.com",
//		Credential: client.Workload{Identity: "41c2…/9f3a…"},
//	})
//	groups := iampb.NewGroupsServiceClient(c)
//
// All and Pages iterate over lists. If the server refuses a call, the error is an *Error
// with all details.
//
// The holdfast command is built on this package.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Config names the server to call and the credential to use. Only Address is required.
type Config struct {
	Address   string // address of the API: https://host[:port], or http:// for a server on this machine
	Audience  string // audience of the tokens; if "", Address
	Issuer    string // address of the token issuer; if "", the server itself
	CAFile    string // file of certificates (PEM) to trust, in addition to the system's
	UserAgent string // name of the program, which the server logs and shows with sessions
	InTheOpen bool   // whether tokens may be sent unencrypted to other machines

	Credential Credential    // gets tokens; if nil, calls carry no token
	Vault      Vault         // stores tokens; if nil, they are kept in memory
	Timeout    time.Duration // timeout of each step that gets a token; if 0, 30 seconds

	Options []grpc.DialOption // options for gRPC, such as interceptors
}

// maxAnswer is the largest response, in bytes. A page of the largest resources is
// smaller.
const maxAnswer = 100 << 20

// A Client is a connection to one server. It is safe for concurrent use.
type Client struct {
	*grpc.ClientConn
	issuer  *Issuer
	renewal *renewal // nil if calls carry no token
	close   func() error
}

// Dial returns a Client. It sends nothing, so the first call shows whether the server
// answers and accepts the credential. The error lists every mistake in cfg.
func Dial(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Audience = cmp.Or(cfg.Audience, Audience(cfg.Address))
	cfg.Issuer = cmp.Or(cfg.Issuer, cfg.Address)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	c := &Client{}
	api := newEndpoint(cfg, cfg.Address)
	api.tokens = c.bearer
	conn, err := api.dial(cfg)
	if err != nil {
		return nil, inField("Address", err)
	}
	c.ClientConn, c.close = conn, conn.Close
	c.issuer = &Issuer{Address: Audience(cfg.Issuer), Audience: cfg.Audience, endpoint: api, conn: conn,
		timeout: cfg.Timeout}
	if Audience(cfg.Issuer) != Audience(cfg.Address) {
		if err := c.dialIssuer(cfg); err != nil {
			return nil, errors.Join(inField("Issuer", err), conn.Close())
		}
	}
	if cfg.Credential != nil {
		c.renewal = newRenewal(cfg, c.issuer)
	}
	return c, nil
}

// dialIssuer connects to an issuer that is not the server itself.
func (c *Client) dialIssuer(cfg Config) error {
	l := newEndpoint(cfg, cfg.Issuer)
	conn, err := l.dial(cfg)
	if err != nil {
		return err
	}
	c.issuer.endpoint, c.issuer.conn = l, conn
	c.close = func() error { return errors.Join(c.ClientConn.Close(), conn.Close()) }
	return nil
}

// Close closes the connection and cancels its calls.
func (c *Client) Close() error { return c.close() }

// Issuer returns the issuer of this client's tokens.
func (c *Client) Issuer() *Issuer { return c.issuer }

// Token returns the token that a call would carry now, for other programs such as curl or
// docker login. It gets a new token if necessary. Without a credential it returns
// ErrNoCredential.
func (c *Client) Token(ctx context.Context) (string, error) {
	if c.renewal == nil {
		return "", ErrNoCredential
	}
	return c.renewal.token(ctx, "")
}

// ErrNoCredential means that a Client needs a token and has no credential.
var ErrNoCredential = errors.New("there is no credential")

// bearer returns a token for a call, other than refused, or "" if calls carry no token.
func (c *Client) bearer(ctx context.Context, refused string) (string, error) {
	if c.renewal == nil {
		return "", nil
	}
	return c.renewal.token(ctx, refused)
}

// check returns all mistakes in cfg, each with the name of its field.
func (cfg Config) check() error {
	var errs []error
	field := func(name string, err error) { errs = append(errs, inField(name, err)) }
	field("Address", CheckAddress(cfg.Address))
	if cfg.Issuer != "" {
		field("Issuer", CheckAddress(cfg.Issuer))
	}
	if cfg.Credential != nil && !cfg.InTheOpen {
		field("Address", checkPrivate(cfg.Address))
		field("Issuer", checkPrivate(cfg.Issuer))
	}
	if cfg.Timeout < 0 {
		field("Timeout", fmt.Errorf("%s is negative", cfg.Timeout))
	}
	_, err := cfg.TLS()
	field("CAFile", err)
	if c, ok := cfg.Credential.(interface{ check() error }); ok {
		field("Credential", c.check())
	}
	return errors.Join(errs...)
}

// inField adds the name of a field to err. It returns nil if err is nil.
func inField(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// TLS returns a configuration that trusts the certificates of the system and of CAFile.
// HTTP clients that call the same server can use it.
func (cfg Config) TLS() (*tls.Config, error) {
	security := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile == "" {
		return security, nil
	}
	text, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	if security.RootCAs, err = x509.SystemCertPool(); err != nil {
		security.RootCAs = x509.NewCertPool()
	}
	if !security.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s", cfg.CAFile)
	}
	return security, nil
}

// transport returns the gRPC transport credentials for an address.
func (cfg Config) transport(u *url.URL) (credentials.TransportCredentials, error) {
	if u.Scheme == "http" {
		return insecure.NewCredentials(), nil
	}
	security, err := cfg.TLS()
	return credentials.NewTLS(security), err
}
