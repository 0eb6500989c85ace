package main

import (
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfast "github.com/holdfast-dev/holdfast/client"
)

// An agent calls a server as whoever is signed in there, or as whom the settings
// name. The first call makes the connection.
type agent struct {
	*console
	*settings
	timeout time.Duration // after which a call is given up
	verbose bool          // tell of every call

	connecting sync.Mutex
	conn       *client
}

// A client is a connection whose calls end when the --timeout is over.
type client struct {
	*holdfast.Client
	timeout time.Duration
}

// Invoke calls one method.
func (c *client) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.Client.Invoke(ctx, method, req, resp, opts...)
}

// Invoke calls one method of the server, so that generated clients take a.
func (a *agent) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	return c.Invoke(ctx, method, req, resp, opts...)
}

// NewStream begins a stream of the server, so that generated clients take a.
func (a *agent) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	return c.NewStream(ctx, desc, method, opts...)
}

// client returns the connection that all calls of a run share. Only a token may
// have been asked for yet: a server that does not answer shows at the first call.
func (a *agent) client(ctx context.Context) (*client, error) {
	a.connecting.Lock()
	defer a.connecting.Unlock()
	if a.conn != nil {
		return a.conn, nil
	}
	api, err := a.server()
	if err != nil {
		return nil, err
	}
	cred, err := a.credential(api.value)
	if err != nil {
		return nil, err
	}
	if cred == nil {
		return nil, newProblem(exitUnauthenticated, "there is no token to show to %s", api.value).hint(noTokenHint)
	}
	c, err := a.connect(api, cred)
	if err != nil {
		return nil, err
	}
	if _, err := c.token(ctx); err != nil {
		c.Close()
		return nil, err
	}
	a.warnInTheOpen(api.value)
	a.conn = c
	return c, nil
}

const noTokenHint = "sign in: holdfast auth login; in development: holdfast config use-dev; or put a token in HOLDFAST_TOKEN"

// server is the address of the server, which must be set.
func (a *agent) server() (settingValue, error) {
	api, err := a.value("api")
	if err == nil && api.value == "" {
		return api, usage("no server is set").hint("run: holdfast config set api https://holdfast.example.com, or set HOLDFAST_API")
	}
	return api, err
}

// connect makes a connection with a credential; nil is none.
func (a *agent) connect(address settingValue, cred *credential) (*client, error) {
	cfg := holdfast.Config{
		Address: address.value, UserAgent: "holdfast/" + clientVersion(), Timeout: a.timeout,
		InTheOpen: true, // warnInTheOpen tells
		Options:   []grpc.DialOption{grpc.WithChainUnaryInterceptor(a.observe)},
	}
	if cred != nil {
		cfg.Credential, cfg.Audience, cfg.Issuer, cfg.Vault = cred, cred.audience, cred.issuer, cred.vault
	}
	if encrypted(cfg.Address) || encrypted(cfg.Issuer) {
		file, err := a.value("ca_file")
		if err != nil {
			return nil, err
		}
		if _, err := a.tls(); err != nil {
			return nil, err
		}
		cfg.CAFile = file.value
	}
	conn, err := holdfast.Dial(cfg)
	if err != nil {
		return nil, usage("%s: %v", address.origin, err)
	}
	return &client{conn, a.timeout}, nil
}

func encrypted(address string) bool { return strings.HasPrefix(holdfast.Audience(address), "https:") }

// tls trusts the system's certificates and those of ca_file.
func (a *agent) tls() (*tls.Config, error) {
	file, err := a.value("ca_file")
	if err != nil {
		return nil, err
	}
	security, err := holdfast.Config{CAFile: file.value}.TLS()
	if err != nil {
		return nil, usage("%s: %v", file.origin, err)
	}
	return security, nil
}

// warnInTheOpen warns of a token that others can read on its way.
func (a *agent) warnInTheOpen(address string) {
	if holdfast.InTheOpen(address) {
		a.warn("the token goes to " + address + " without encryption")
	}
}

// token returns a token that is good now. Its error is a problem.
func (c *client) token(ctx context.Context) (string, error) {
	token, err := c.Token(ctx)
	if err != nil {
		return "", refused(err, nil)
	}
	return token, nil
}

// call calls a method of a generated client. Its error is a problem; flags
// names the flag that sets each field which the server may refuse.
func call[Request, Response any](
	ctx context.Context, method func(context.Context, Request, ...grpc.CallOption) (Response, error),
	req Request, flags map[string]string,
) (resp Response, err error) {
	if resp, err = method(ctx, req); err != nil {
		err = refused(err, flags)
	}
	return resp, err
}

// observe tells of a call if the person wants to know, and of what the server
// warns of.
func (a *agent) observe(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header metadata.MD
	start := time.Now()
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.Header(&header))...)
	if a.verbose {
		id := "none"
		if ids := header.Get("x-request-id"); len(ids) > 0 {
			id = ids[0]
		}
		a.note("%s %s in %s, request %s", method[1:], status.Code(err), time.Since(start).Round(100*time.Microsecond), id)
	}
	for _, text := range header.Get("holdfast-warning") {
		a.warn(text)
	}
	return err
}
