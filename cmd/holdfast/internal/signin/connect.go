// Package signin connects to a server in one of three ways: as a person who signs in with
// a browser, as a workload with a token from its platform, or with a given token.
//
// An Agent calls the server. credential.go selects the token, person.go and workload.go
// sign in, and session.go and vault.go store tokens between runs.
package signin

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

// An Agent calls a server as the identity that has signed in or that the settings name.
// The first call connects.
type Agent struct {
	*output.Console
	*settings.Settings
	Timeout time.Duration // time limit of a call
	Verbose bool          // whether to print a line for every call

	connecting sync.Mutex
	conn       *client
}

// A client is a connection whose calls time out.
type client struct {
	*holdfast.Client
	timeout time.Duration
}

// Invoke implements grpc.ClientConnInterface.
func (c *client) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.Client.Invoke(ctx, method, req, resp, opts...)
}

// Invoke implements grpc.ClientConnInterface.
func (a *Agent) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	c, err := a.connection(ctx)
	if err != nil {
		return err
	}
	return c.Invoke(ctx, method, req, resp, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (a *Agent) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c, err := a.connection(ctx)
	if err != nil {
		return nil, err
	}
	return c.NewStream(ctx, desc, method, opts...)
}

// Connect makes the connection, if there is none, and gets a token.
func (a *Agent) Connect(ctx context.Context) error {
	_, err := a.connection(ctx)
	return err
}

// connection returns the connection that all calls share, with a token. The first call
// shows whether the server answers.
func (a *Agent) connection(ctx context.Context) (*client, error) {
	a.connecting.Lock()
	defer a.connecting.Unlock()
	if a.conn != nil {
		return a.conn, nil
	}
	api, err := a.Server()
	if err != nil {
		return nil, err
	}
	cred, err := a.credential(api.Text)
	if err != nil {
		return nil, err
	}
	if cred == nil {
		return nil, problem.New(problem.ExitUnauthenticated, "you are not signed in to %s", api.Text).Hint(noTokenHint)
	}
	c, err := a.connect(api, cred)
	if err != nil {
		return nil, err
	}
	if _, err := c.token(ctx); err != nil {
		c.Close()
		return nil, err
	}
	a.conn = c
	return c, nil
}

const noTokenHint = "sign in: holdfast auth login; in development: holdfast config use-dev; or put a token in " +
	"HOLDFAST_TOKEN"

// Close closes the connection, if there is one.
func (a *Agent) Close() {
	if a.conn != nil {
		a.conn.Close()
	}
}

// Server returns the address of the server. It returns a problem if none is set.
func (a *Agent) Server() (settings.Value, error) {
	api, err := a.Value("api")
	if err == nil && api.Text == "" {
		return api, problem.Usage("no server is set").
			Hint("run: holdfast config set api https://holdfast.example.com, or set HOLDFAST_API").
			Hint(settings.Renamed()...)
	}
	return api, err
}

// connect makes a connection. If cred is nil, calls carry no token.
func (a *Agent) connect(address settings.Value, cred *credential) (*client, error) {
	if cred != nil {
		if err := a.allow(address.Text, cred.issuer); err != nil {
			return nil, err
		}
	}
	cfg := holdfast.Config{
		Address: address.Text, UserAgent: "holdfast/" + buildinfo.Version(), Timeout: a.Timeout,
		InTheOpen: true, // allow has already checked the addresses
		Options:   []grpc.DialOption{grpc.WithChainUnaryInterceptor(a.observe)},
	}
	if cred != nil {
		cfg.Credential, cfg.Audience, cfg.Issuer, cfg.Vault = cred, cred.audience, cred.issuer, cred.vault
	}
	if encrypted(cfg.Address) || encrypted(cfg.Issuer) {
		file, err := a.Value("ca_file")
		if err != nil {
			return nil, err
		}
		if _, err := a.tls(); err != nil {
			return nil, err
		}
		cfg.CAFile = file.Text
	}
	conn, err := holdfast.Dial(cfg)
	if err != nil {
		return nil, problem.Usage("%s: %v", address.Origin, err)
	}
	return &client{conn, a.Timeout}, nil
}

func encrypted(address string) bool { return strings.HasPrefix(holdfast.Audience(address), "https:") }

// tls returns a configuration that trusts the certificates of the system and of ca_file.
func (a *Agent) tls() (*tls.Config, error) {
	file, err := a.Value("ca_file")
	if err != nil {
		return nil, err
	}
	security, err := holdfast.Config{CAFile: file.Text}.TLS()
	if err != nil {
		return nil, problem.Usage("%s: %v", file.Origin, err)
	}
	return security, nil
}

// allow returns a problem if a token would be sent unencrypted to one of the addresses,
// unless the settings allow it.
func (a *Agent) allow(addresses ...string) error {
	open := slices.IndexFunc(addresses, holdfast.InTheOpen)
	if open < 0 {
		return nil
	}
	address := addresses[open]
	insecure, err := a.Value("insecure")
	if err != nil {
		return err
	}
	if insecure.Text == "true" {
		a.Warn("the token goes to " + address + " without encryption")
		return nil
	}
	p := problem.New(problem.ExitUnreachable, "the token would go to %s without encryption, so nothing was sent", address)
	return p.Hint("use https://, or --insecure if nobody else can read the traffic")
}

// token returns a valid token. Its error is a problem.
func (c *client) token(ctx context.Context) (string, error) {
	token, err := c.Token(ctx)
	if err != nil {
		return "", Refused(err, nil)
	}
	return token, nil
}

// observe prints the server's warnings. If Verbose is set, it also prints a line for each
// call.
func (a *Agent) observe(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header metadata.MD
	start := time.Now()
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.Header(&header))...)
	if a.Verbose {
		id := "none"
		if ids := header.Get("x-request-id"); len(ids) > 0 {
			id = ids[0]
		}
		a.Note("%s %s in %s, request %s", method[1:], status.Code(err), time.Since(start).Round(100*time.Microsecond), id)
	}
	for _, text := range header.Get("holdfast-warning") {
		a.Warn(text)
	}
	return err
}
