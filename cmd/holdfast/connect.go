package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxAnswer is more than a page of the largest resources.
const maxAnswer = 100 << 20

// A client calls the methods of one server.
type client struct {
	*grpc.ClientConn
	app   *app
	api   string
	token string
}

// client returns the connection that all commands of a run share. Nothing has
// been sent yet: a server that is not there shows at the first call.
func (a *app) client() (*client, error) {
	if a.conn != nil {
		return a.conn, nil
	}
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	if c.token == "" {
		c.Close()
		p := &problem{text: "there is no token to show to " + c.api, code: exitUnauthenticated}
		p.hints = []string{"put one in HOLDFAST_TOKEN or name its file with --token-file; in development run: holdfast config use-dev"}
		return nil, p
	}
	a.conn = c
	return c, nil
}

func (a *app) connect() (*client, error) {
	api, err := a.value("api")
	if err != nil {
		return nil, err
	}
	if api.value == "" {
		p := usage("no server is set")
		p.hints = []string{"run: holdfast config set api https://holdfast.example.com, or set HOLDFAST_API"}
		return nil, p
	}
	u, err := url.Parse(api.value)
	if err != nil {
		return nil, err
	}
	security := insecure.NewCredentials()
	if u.Scheme == "https" {
		if security, err = a.tls(); err != nil {
			return nil, err
		}
	}
	token, _, err := a.token(canonical(api.value))
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" && token != "" && !isLoopback(u.Hostname()) {
		a.note("warning: the token goes to %s without encryption", api.value)
	}
	conn, err := grpc.NewClient(hostPort(u),
		grpc.WithTransportCredentials(security), grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("holdfast/"+clientVersion()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, usage("%s: %v", api.origin, err)
	}
	return &client{ClientConn: conn, app: a, api: api.value, token: token}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// tls trusts the system's certificates and those of ca_file.
func (a *app) tls() (credentials.TransportCredentials, error) {
	file, err := a.value("ca_file")
	if err != nil || file.value == "" {
		return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), err
	}
	text, err := os.ReadFile(file.value)
	if err != nil {
		return nil, usage("%s: %v", file.origin, err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, usage("%s: there is no certificate in %s", file.origin, file.value)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}), nil
}

// call calls one method. Its error is a problem; flags tells it which flag sets
// a field that the server does not like.
func (c *client) call(ctx context.Context, method protoreflect.MethodDescriptor, req proto.Message, flags map[string]string) (protoreflect.Message, error) {
	resp := newMessage(method.Output())
	ctx, cancel := context.WithTimeout(ctx, c.app.flags.timeout)
	defer cancel()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	name := string(method.Parent().FullName()) + "/" + string(method.Name())
	var header metadata.MD
	start := time.Now()
	err := c.Invoke(ctx, "/"+name, req, resp.Interface(), grpc.Header(&header))
	if c.app.flags.verbose {
		id := "none"
		if ids := header.Get("x-request-id"); len(ids) > 0 {
			id = ids[0]
		}
		c.app.note("%s %s in %s, request %s", name, status.Code(err), time.Since(start).Round(100*time.Microsecond), id)
	}
	if err != nil {
		return nil, refusal{c.api, status.Convert(err), flags}.problem()
	}
	return resp, nil
}

// newMessage returns an empty message of a type that is linked in.
func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	must(err)
	return t.New()
}
