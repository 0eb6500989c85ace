package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// An endpoint is an address, with the tokens for calls to it.
type endpoint struct {
	address string
	private bool // whether tokens may be sent only over TLS
	// tokens returns the token for a call. If it is nil, each call brings its own token, or
	// has none.
	tokens func(ctx context.Context, refused string) (string, error)
}

func newEndpoint(cfg Config, address string) *endpoint {
	u, err := url.Parse(address)
	encrypted := err != nil || u.Scheme != "http"
	return &endpoint{address: Audience(address), private: encrypted || (InTheOpen(address) && !cfg.InTheOpen)}
}

func (e *endpoint) dial(cfg Config) (*grpc.ClientConn, error) {
	u, err := url.Parse(e.address)
	if err != nil {
		return nil, err
	}
	security, err := cfg.transport(u)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent(cmp.Or(cfg.UserAgent, "holdfast-go")),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithChainUnaryInterceptor(e.unary), grpc.WithChainStreamInterceptor(e.stream),
	}
	return grpc.NewClient(hostPort(u), slices.Concat(options, cfg.Options)...)
}

// A bearer is the token of one call. gRPC refuses to send a private token without TLS,
// even if a dial option has made the connection insecure.
type bearer struct {
	token   string
	private bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.private }

// withToken returns the options of a call that carries token, or none if token is "".
func (e *endpoint) withToken(token string) []grpc.CallOption {
	if token == "" {
		return nil
	}
	return []grpc.CallOption{grpc.PerRPCCredentials(bearer{token, e.private})}
}

// hasCredentials reports whether the options of a call already contain credentials.
func hasCredentials(opts []grpc.CallOption) bool {
	return slices.ContainsFunc(opts, func(o grpc.CallOption) bool {
		_, ok := o.(grpc.PerRPCCredsCallOption)
		return ok
	})
}

// unary makes a call with a token. If the server refuses the token, it has not executed
// the call, so unary repeats the call with a new token. Errors are of type *Error.
func (e *endpoint) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := func(token string) error {
		var header metadata.MD
		options := slices.Concat(e.withToken(token), opts, []grpc.CallOption{grpc.Header(&header)})
		return e.failure(method, header, invoke(ctx, method, req, reply, conn, options...))
	}
	if e.tokens == nil || hasCredentials(opts) {
		return call("")
	}
	token, err := e.tokens(ctx, "")
	if err != nil {
		return err
	}
	err = call(token)
	if token == "" || status.Code(err) != codes.Unauthenticated {
		return err
	}
	another, renewed := e.tokens(ctx, token)
	if renewed != nil {
		return renewed
	}
	if another == token {
		return err
	}
	return call(another)
}

// stream starts a stream with a token. If the server refuses the token, the stream is not
// started again, because the messages that were sent on it are lost.
func (e *endpoint) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token := ""
	if e.tokens != nil && !hasCredentials(opts) {
		var err error
		if token, err = e.tokens(ctx, ""); err != nil {
			return nil, err
		}
	}
	s, err := begin(ctx, desc, conn, method, slices.Concat(e.withToken(token), opts)...)
	if err != nil {
		return nil, e.failure(method, nil, err)
	}
	return stream{s, e, method}, nil
}

// A stream is a grpc.ClientStream that returns errors of type *Error.
type stream struct {
	grpc.ClientStream
	endpoint *endpoint
	method   string
}

// RecvMsg receives the next message, and returns io.EOF after the last.
func (s stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	header, _ := s.Header() // nil if the server did not answer
	return s.endpoint.failure(s.method, header, err)
}
